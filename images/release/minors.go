package release

// This table lists the dependencies of each Kubernetes release. The source is kubeadm of
// the same version: cmd/kubeadm/app/constants/constants.go has CoreDNSVersion,
// PauseVersion and DefaultEtcdVersion; SupportedEtcdVersion has the same etcd for the
// release's minor version. The version of crictl is the one that the release is tested
// with (build/dependencies.yaml).
//
// Each row names the first patch version that it applies to. The rows were read from the
// k8s.io/kubernetes modules of the patch versions in the comments. They match what the
// CHANGELOG of each release lists for etcd, CoreDNS and pause.

// OldestMinor and NewestMinor are the Kubernetes minor versions that Airlift
// installs.
const OldestMinor, NewestMinor = 29, 37

type minor struct {
	newest int // the newest patch version whose sources were read
	crictl string
	rows   []row // sorted by since; the first has since 0
}

type row struct {
	since                int // first patch version
	etcd, coredns, pause string
}

// at returns the versions of a patch version. For a patch version that is newer than the table it
// returns the newest row's versions: they seldom change within a minor version, and a missing image
// is reported by name.
func (m minor) at(patch int) Versions {
	r := m.rows[0]
	for _, next := range m.rows[1:] {
		if patch >= next.since {
			r = next
		}
	}
	return Versions{Etcd: r.etcd, CoreDNS: r.coredns, Pause: r.pause, Crictl: m.crictl}
}

var minors = map[int]minor{
	29: {15, "v1.28.0", []row{ // read: 0, 2, 3, 6, 8, 9, 10, 14, 15; etcd 3.5.16 in 1.29.11 from kubernetes pull request 127953
		{0, "3.5.10-0", "v1.11.1", "3.9"},
		{3, "3.5.12-0", "v1.11.1", "3.9"},
		{9, "3.5.15-0", "v1.11.1", "3.9"},
		{11, "3.5.16-0", "v1.11.1", "3.9"},
	}},
	30: {14, "v1.29.0", []row{ // read: 4, 5, 8, 14
		{0, "3.5.12-0", "v1.11.1", "3.9"},
		{5, "3.5.15-0", "v1.11.3", "3.9"},
	}},
	31: {14, "v1.30.0", []row{ // read: 0, 13, 14; CoreDNS v1.11.3 in 1.31.1 from its CHANGELOG
		{0, "3.5.15-0", "v1.11.1", "3.10"},
		{1, "3.5.15-0", "v1.11.3", "3.10"},
		{14, "3.5.24-0", "v1.11.3", "3.10"},
	}},
	32: {13, "v1.31.1", []row{ // read: 0, 2, 9, 13; etcd 3.5.24 in 1.32.10 from its CHANGELOG
		{0, "3.5.16-0", "v1.11.3", "3.10"},
		{10, "3.5.24-0", "v1.11.3", "3.10"},
	}},
	33: {13, "v1.32.0", []row{ // read: 0, 5, 6, 13
		{0, "3.5.21-0", "v1.12.0", "3.10"},
		{6, "3.5.24-0", "v1.12.0", "3.10"},
	}},
	34: {9, "v1.33.0", []row{ // read: 0, 1, 2, 9
		{0, "3.6.4-0", "v1.12.1", "3.10.1"},
		{2, "3.6.5-0", "v1.12.1", "3.10.1"},
	}},
	35: {6, "v1.34.0", []row{ // read: 0, 4, 6
		{0, "3.6.6-0", "v1.13.1", "3.10.1"},
	}},
	36: {3, "v1.35.0", []row{ // read: 0, 1, 3
		{0, "3.6.8-0", "v1.14.2", "3.10.2"},
	}},
	37: {2, "v1.36.0", []row{ // read: 0, 1, 2
		{0, "3.7.0-0", "v1.14.6", "3.10.2"},
	}},
}
