package pki

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"slices"
	"time"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// CheckShared fails if a joining control plane does not have the files that all
// control planes share: the CAs, the service-account key and, with an external
// etcd, the client certificate for it. With an external CA, this node's own
// certificates must exist too, and for the cluster's CA the kubeconfigs, because
// they cannot be created here. The error lists everything that is missing or
// cannot be used.
func CheckShared(cfg *config.Config, host fs.FS, now time.Time) error {
	joining := *cfg
	joining.ControlPlane = true
	table, err := Certificates(&joining)
	if err != nil {
		return err
	}
	e := ensurer{cfg: &joining, host: host, now: now, authorities: map[string]authority{}}
	for _, c := range table {
		if c.CA == "" {
			e.add(e.authority(c))
		} else if e.authorities[c.CA].external() {
			e.add(e.leaf(c))
		}
	}
	e.add(e.serviceAccountKey())
	if e.authorities["ca"].external() {
		_, err := Kubeconfigs(&joining, host, now)
		e.add(err)
	}
	if cfg.Etcd.External != nil {
		e.add(checkEtcdClient(cfg.Etcd.External, host, now))
	}
	return e.problems.err()
}

// checkEtcdClient checks the API server's files for an external etcd. It does not
// check which CA signed the client certificate: etcd may use different CAs for
// servers and clients.
func checkEtcdClient(etcd *config.ExternalEtcd, host fs.FS, now time.Time) error {
	var p problems
	load := func(file string) []byte {
		if file == "" {
			return nil // plain HTTP, or a server without client authentication
		}
		data, err := read(host, file)
		if err == nil && data == nil {
			err = fault.New(fault.Failure, "%s does not exist; the API server needs it to connect to the external etcd", file).Hint(sharedHint)
		}
		p.add(err)
		return data
	}
	caPEM, certPEM, keyPEM := load(etcd.CAFile), load(etcd.CertFile), load(etcd.KeyFile)
	if caPEM != nil {
		if _, err := ParseCertificates(caPEM); err != nil {
			p.add(unusable(etcd.CAFile, err))
		}
	}
	if certPEM == nil || keyPEM == nil {
		return p.err()
	}
	certs, err := ParseCertificates(certPEM)
	if err != nil {
		p.add(unusable(etcd.CertFile, err))
		return p.err()
	}
	if err := current(certs[0], now); err != nil {
		p.add(unusable(etcd.CertFile, err))
	}
	if usages := certs[0].ExtKeyUsage; len(usages) > 0 && !slices.Contains(usages, x509.ExtKeyUsageClientAuth) && !slices.Contains(usages, x509.ExtKeyUsageAny) {
		p.add(unusable(etcd.CertFile, errors.New("its key usage does not allow client authentication")))
	}
	if key, err := parseKey(keyPEM); err != nil {
		p.add(unusable(etcd.KeyFile, err))
	} else if !matches(certs[0].PublicKey, key) {
		p.add(unusable(etcd.KeyFile, errors.New("it is not the key of "+etcd.CertFile)))
	}
	return p.err()
}
