package node

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"airlift/internal/fault"
)

// NewerEtcd returns the image of this host's etcd if that is newer than an image, which may not start with its data: an upgrade to a
// file with an older etcd keeps it. It returns "" if the image may replace it.
func (m *Machine) NewerEtcd(image string) (string, error) {
	now, err := m.ReadManifest(EtcdPod)
	if err != nil || now == nil {
		return "", err
	}
	is, err := PodImage(now)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", EtcdManifest, err)
	}
	if a, b := imageVersion(is), imageVersion(image); a == nil || b == nil || !b.LessThan(a) {
		return "", nil
	}
	return is, nil
}

// OlderEtcd returns why a new manifest must not replace the manifest of this host's etcd: the new one has an older
// etcd, which may refuse the data. It returns "" if the new manifest may replace it.
func (m *Machine) OlderEtcd(manifest []byte) (string, error) {
	if manifest == nil {
		return "", nil
	}
	want, err := PodImage(manifest)
	if err != nil {
		return "", err
	}
	is, err := m.NewerEtcd(want)
	if err != nil || is == "" {
		return "", err
	}
	return fmt.Sprintf("this host has %s, and this file has the older %s", is, want), nil
}

// CheckEtcd refuses an image of etcd that is older than the cluster's version of etcd ("3.7.1"): etcd does not start with
// data of a newer minor version. kubernetes is the version of the file that has the image.
func CheckEtcd(image, version, kubernetes string) error {
	is := imageVersion(image)
	want, err := utilversion.ParseGeneric(version)
	if err != nil || is == nil || is.AtLeast(want) || is.Major() == want.Major() && is.Minor() == want.Minor() {
		return nil
	}
	return fault.New(fault.Preflight, "the cluster's data is of etcd %s, and this file has the older %s, which does not start with that data", version, image).
		Hint(fmt.Sprintf("use a file with that etcd: bundle build --version %s --etcd-version %s-0", kubernetes, version))
}

// SameEtcd reports whether two manifests of etcd have the same minor version.
func SameEtcd(a, b []byte) (bool, error) {
	was, err := PodImage(a)
	if err != nil {
		return false, err
	}
	is, err := PodImage(b)
	return SameEtcdImage(was, is), err
}

// SameEtcdImage reports whether two images of etcd have the same minor version, so that each can
// read the other's data.
func SameEtcdImage(a, b string) bool {
	v, w := imageVersion(a), imageVersion(b)
	return a == b || v != nil && w != nil && v.Major() == w.Major() && v.Minor() == w.Minor()
}

// PodImage returns the image of a static pod's manifest.
func PodImage(manifest []byte) (string, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return "", err
	}
	if len(pod.Spec.Containers) == 0 {
		return "", errors.New("the manifest has no container")
	}
	return pod.Spec.Containers[0].Image, nil
}

// imageVersion returns the version in an image's tag, or nil: 3.5.16 for "…/etcd:3.5.16-0". The
// number after the dash counts builds.
func imageVersion(image string) *utilversion.Version {
	image, _, _ = strings.Cut(image, "@") // a digest
	i := strings.LastIndexByte(image, ':')
	if i < 0 {
		return nil
	}
	v, err := utilversion.ParseGeneric(strings.Replace(image[i+1:], "-", ".", 1))
	if err != nil {
		return nil
	}
	return v
}
