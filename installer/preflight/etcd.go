package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"airlift/installer/config"
	"airlift/installer/etcd"
	"airlift/internal/documents/pemfile"
)

// externalEtcdTimeout limits one request to an external etcd.
const externalEtcdTimeout = 5 * time.Second

// minEtcd is the oldest etcd that a Kubernetes minor version works with
// (kubeadm's constants.go: MinExternalEtcdVersion).
func minEtcd(minor uint) string {
	if minor >= 31 {
		return "3.5.24"
	}
	return "3.4.13"
}

// externalEtcdVersion gets the version of every endpoint, which also proves that
// it answers and that the certificates are right.
func (s *subject) externalEtcdVersion(ctx context.Context) (found []Problem) {
	external := s.Config.Etcd.External
	client, err := s.etcdClient(external)
	if err != nil {
		return nil // ExternalEtcdClientCertificates reports it
	}
	minimum := minEtcd(29)
	if v, err := version.ParseSemantic(s.Config.KubernetesVersion); err == nil {
		minimum = minEtcd(v.Minor())
	}
	for _, endpoint := range external.Endpoints {
		is, err := etcdVersion(ctx, client, endpoint)
		switch {
		case err != nil:
			found = append(found, Fail("start it, or correct its address or certificates", "getting the version of the etcd at %s: %v", endpoint, err)...)
		case is.LessThan(version.MustParseSemantic(minimum)):
			found = append(found, Fail("upgrade it", "the etcd at %s is %s, Kubernetes %s needs %s or newer", endpoint, is, s.Config.KubernetesVersion, minimum)...)
		}
	}
	return found
}

func etcdVersion(ctx context.Context, client *http.Client, endpoint string) (*version.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, externalEtcdTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(endpoint, "/")+"/version", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, errors.Unwrap(err) // without the URL, which the caller names
	}
	defer resp.Body.Close()
	var answer struct {
		Server string `json:"etcdserver"`
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it returned %s", resp.Status)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, 1<<16))
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil {
		return nil, fmt.Errorf("its response is not etcd's: %w", err)
	}
	return version.ParseSemantic(answer.Server)
}

// externalEtcdCertificates requires the configured files to exist and to contain
// certificates and a key.
func (s *subject) externalEtcdCertificates(context.Context) (found []Problem) {
	external := s.Config.Etcd.External
	for _, f := range []struct {
		field, path string
		kind        pemfile.Kind
	}{
		{"caFile", external.CAFile, pemfile.Certificate}, {"certFile", external.CertFile, pemfile.Certificate}, {"keyFile", external.KeyFile, pemfile.PrivateKey},
	} {
		if f.path == "" {
			continue
		}
		if data, err := os.ReadFile(s.host.Path(f.path)); err != nil {
			found = append(found, Fail("put the file there", "etcd.external.%s: %v", f.field, err)...)
		} else if err := pemfile.Check(data, f.kind); err != nil {
			found = append(found, Fail(pemfile.HintOf(err, f.path, "provide a PEM file"), "etcd.external.%s: %s: %v", f.field, f.path, err)...)
		}
	}
	if len(found) > 0 {
		return found
	}
	if _, err := s.etcdClient(external); err != nil {
		return Fail("check that the certificate and the key belong together", "etcd.external: %v", err)
	}
	return nil
}

func (s *subject) etcdClient(e *config.ExternalEtcd) (*http.Client, error) {
	files := [3]string{e.CAFile, e.CertFile, e.KeyFile}
	for i, file := range files {
		if file != "" {
			files[i] = s.host.Path(file)
		}
	}
	cfg, err := etcd.TLS(files[0], files[1], files[2])
	return &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true}}, err
}
