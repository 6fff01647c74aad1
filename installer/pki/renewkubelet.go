package pki

import (
	"crypto/x509"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// RenewKubelet renews the kubelet's client certificate if it has expired, and returns no files
// otherwise: a running kubelet renews its certificate itself, but a kubelet that was offline until
// the certificate expired cannot. The new certificate is in another dated file, to which the link
// then points, as when the kubelet renews it. In a kubelet.conf that contains the certificate, it
// is replaced there.
//
// A missing kubelet.conf, and a CA whose key is not on this host, are errors.
func RenewKubelet(cfg *config.Config, host fs.FS, now time.Time) (Result, error) {
	return renewKubelet(cfg, host, now, func(cert *x509.Certificate) (bool, error) { return !now.Before(cert.NotAfter), nil })
}

// ReissueKubelet is RenewKubelet for a certificate that the first CA in ca.crt has not signed.
func ReissueKubelet(cfg *config.Config, host fs.FS, now time.Time) (Result, error) {
	return renewKubelet(cfg, host, now, func(cert *x509.Certificate) (bool, error) {
		ca, err := clusterCA(cfg, host, now)
		return err == nil && cert.CheckSignatureFrom(ca.cert) != nil, err
	})
}

func renewKubelet(cfg *config.Config, host fs.FS, now time.Time, due func(*x509.Certificate) (bool, error)) (Result, error) {
	if err := checkClock(now); err != nil {
		return Result{}, err
	}
	k, err := readKubelet(host)
	if err != nil {
		return Result{}, err
	}
	if k.conf == nil {
		return Result{}, fault.New(fault.Failure, "%s does not exist", kubeletConf).Hint("create it with './install init phase kubeconfig kubelet'")
	}
	if k.cert == nil { // a bootstrap token, or a file that does not exist
		return Result{}, nil
	}
	certs, err := ParseCertificates(k.cert)
	if err != nil {
		return Result{}, unusable(k.file, err)
	}
	old := certs[0]
	if yes, err := due(old); err != nil || !yes {
		return Result{}, err
	}
	ca, err := clusterCA(cfg, host, now)
	if err != nil {
		return Result{}, err
	}
	if ca.external() {
		return Result{}, fault.New(fault.Failure, "the kubelet's client certificate, %s, must be renewed, and the key of the CA %s is not on this host", k.file, ca.path).
			Hint("remove kubelet.conf and join this node again with a new token ('./install token create' on a control plane)")
	}
	newCert, key, err := issuePEM(cfg, ca, renewed(cfg, "kubelet", old), now)
	if err != nil {
		return Result{}, fmt.Errorf("renewing %s: %w", k.file, err)
	}
	return k.with(now, ca.trusted(), newCert, key)
}

const kubeletConf = config.KubernetesDir + "/kubelet.conf"

// A kubeletClient is where a kubelet has its client certificate.
type kubeletClient struct {
	conf []byte // kubelet.conf; nil if it does not exist
	file string // with the certificate: kubelet.conf, or the file to which that refers
	cert []byte // nil for a bootstrap token, or if the file does not exist
}

func readKubelet(host fs.FS) (k kubeletClient, err error) {
	k.file = kubeletConf
	if k.conf, err = read(host, kubeletConf); err != nil || k.conf == nil {
		return k, err
	}
	_, u, err := parseKubeconfig(kubeletConf, k.conf)
	if k.cert = u.ClientCertificateData; err == nil && u.ClientCertificate != "" {
		k.file = u.ClientCertificate
		k.cert, err = read(host, k.file)
	}
	return k, err
}

// with returns the files with a new certificate. caPEM is the CA that kubelet.conf gets if it contains the certificate; nil keeps
// its CA.
func (k kubeletClient) with(now time.Time, caPEM, certPEM, keyPEM []byte) (Result, error) {
	if k.file != kubeletConf {
		return Result{Files: datedFiles(k.file, now, certPEM, keyPEM)}, nil
	}
	data, err := withClient(k.conf, caPEM, certPEM, keyPEM)
	if err != nil {
		return Result{}, unusable(kubeletConf, err)
	}
	return Result{Files: []File{{Path: kubeletConf, Data: data, Mode: keyMode}}}, nil
}

// datedFiles are a new file with a certificate and its key, and the link current to it. Its name has the format of
// client-go's certificate store (util/certificate/certificate_store.go).
func datedFiles(current string, now time.Time, certPEM, keyPEM []byte) []File {
	dated := path.Join(path.Dir(current), "kubelet-client-"+now.Format("2006-01-02-15-04-05")+".pem")
	return []File{{Path: dated, Data: slices.Concat(certPEM, keyPEM), Mode: keyMode}, {Path: current, Link: dated}}
}
