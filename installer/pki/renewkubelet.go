package pki

import (
	"crypto/x509"
	"fmt"
	"io/fs"
	"path"
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
	file := path.Join(config.KubernetesDir, "kubelet.conf")
	data, err := read(host, file)
	if err != nil {
		return Result{}, err
	}
	if data == nil {
		return Result{}, fault.New(fault.Failure, "%s does not exist", file).Hint("create it with './install init phase kubeconfig kubelet'")
	}
	_, u, err := parseKubeconfig(file, data)
	if err != nil {
		return Result{}, err
	}
	certPEM, certFile := u.CertData, file
	if u.CertFile != "" {
		certFile = u.CertFile
		if certPEM, err = read(host, certFile); err != nil {
			return Result{}, err
		}
	}
	if certPEM == nil { // a bootstrap token, or a file that does not exist
		return Result{}, nil
	}
	certs, err := ParseCertificates(certPEM)
	if err != nil {
		return Result{}, unusable(certFile, err)
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
		return Result{}, fault.New(fault.Failure, "the kubelet's client certificate, %s, must be renewed, and the key of the CA %s is not on this host", certFile, ca.path).
			Hint("remove kubelet.conf and join this node again with a new token ('./install token create' on a control plane)")
	}
	newCert, key, err := issuePEM(cfg, ca, renewed(cfg, "kubelet", old), now)
	if err != nil {
		return Result{}, fmt.Errorf("renewing %s: %w", certFile, err)
	}
	if u.CertFile == "" {
		data, err := withClient(data, ca.trusted(), newCert, key)
		if err != nil {
			return Result{}, unusable(file, err)
		}
		return Result{Files: []File{{Path: file, Data: data, Mode: keyMode}}}, nil
	}
	dated := datedCertFile(certFile, now)
	return Result{Files: []File{
		{Path: dated, Data: append(newCert, key...), Mode: keyMode},
		{Path: certFile, Link: dated},
	}}, nil
}

// datedCertFile is the file of a certificate that current links to. The name has the format of
// client-go's certificate store (util/certificate/certificate_store.go).
func datedCertFile(current string, now time.Time) string {
	return path.Join(path.Dir(current), "kubelet-client-"+now.Format("2006-01-02-15-04-05")+".pem")
}
