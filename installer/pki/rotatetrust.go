package pki

import (
	"bytes"
	"io/fs"
	"path"
	"time"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// TrustCAs returns the files with which a worker trusts the CAs of a bundle: caFile, which is the
// kubelet's clientCAFile, and kubelet.conf. Files that have them already are kept.
func TrustCAs(host fs.FS, caFile string, bundle []byte) (Result, error) {
	var result Result
	var p problems
	if caFile != "" {
		p.add(addChanged(host, File{Path: caFile, Data: bundle, Mode: certMode}, &result))
	}
	p.add(trustInKubeconfigs(host, bundle, &result))
	return p.unless(result)
}

// addChanged adds a file to the result, as kept if it has this content.
func addChanged(host fs.FS, f File, result *Result) error {
	data, err := read(host, f.Path)
	switch {
	case err != nil:
		return err
	case bytes.Equal(data, f.Data):
		result.Kept = append(result.Kept, f.Path)
	default:
		result.Files = append(result.Files, f)
	}
	return nil
}

// trustInKubeconfigs sets the CA in this node's kubeconfigs. It keeps one that names a file.
func trustInKubeconfigs(host fs.FS, bundle []byte, result *Result) error {
	for _, name := range KubeconfigNames() {
		file := path.Join(config.KubernetesDir, name+".conf")
		data, err := read(host, file)
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		cl, _, err := parseKubeconfig(file, data)
		if err != nil {
			return err
		}
		if cl.CertificateAuthority != "" || bytes.Equal(cl.CertificateAuthorityData, bundle) {
			result.Kept = append(result.Kept, file)
			continue
		}
		if data, err = editKubeconfig(data, func(doc, ctx map[string]any) error { return setTrust(doc, ctx, bundle) }); err != nil {
			return unusable(file, err)
		}
		result.Files = append(result.Files, File{Path: file, Data: data, Mode: keyMode})
	}
	return nil
}

// WithoutCerts returns a PEM bundle without certain certificates.
func WithoutCerts(bundle []byte, remove ...[]byte) ([]byte, error) {
	certs, err := ParseCertificates(bundle)
	if err != nil {
		return nil, err
	}
	var unwanted []byte
	for _, one := range remove {
		unwanted = append(unwanted, one...)
	}
	var kept []byte
	for _, cert := range certs {
		if pem := encodePEM(certType, cert.Raw); !bytes.Contains(unwanted, pem) {
			kept = append(kept, pem...)
		}
	}
	return kept, nil
}

// SigningCA returns only the signing CA, if a CA's file also has a rotation's second CA with the
// same name. It returns any other file unchanged.
func SigningCA(caPEM []byte) (signer []byte, rotated bool) {
	certs, err := ParseCertificates(caPEM)
	if err != nil || len(certs) < 2 {
		return caPEM, false
	}
	for _, c := range certs[1:] {
		if !bytes.Equal(c.RawSubject, certs[0].RawSubject) {
			return caPEM, false
		}
	}
	return encodePEM(certType, certs[0].Raw), true
}

// A KubeletRequest is a key with the request for a worker's client certificate.
type KubeletRequest struct {
	CSR, key []byte // PEM
}

// RequestKubelet returns a request for a new certificate with the names of this kubelet's, or nil
// if the CA in caPEM has signed the present one.
func RequestKubelet(cfg *config.Config, host fs.FS, caPEM []byte) (*KubeletRequest, error) {
	signed, err := KubeletSignedBy(host, caPEM)
	if err != nil || signed {
		return nil, err
	}
	old, err := kubeletClientCert(host)
	if err != nil {
		return nil, err
	}
	key, err := newKey(algorithmOf(old.PublicKey))
	if err != nil {
		return nil, err
	}
	r := &KubeletRequest{}
	if r.key, err = encodeKey(key); err != nil {
		return nil, err
	}
	der, err := newRequest(renewed(cfg, "kubelet", old), key)
	r.CSR = encodePEM(requestType, der)
	return r, err
}

// Files returns the files with the certificate that answers the request.
func (r *KubeletRequest) Files(host fs.FS, now time.Time, certPEM []byte) (Result, error) {
	k, err := readKubelet(host)
	if err != nil {
		return Result{}, err
	}
	return k.with(now, nil, certPEM, r.key)
}

// KubeletSignedBy reports whether a CA has signed the kubelet's client certificate.
func KubeletSignedBy(host fs.FS, caPEM []byte) (bool, error) {
	ca, err := ParseCertificates(caPEM)
	if err != nil {
		return false, err
	}
	cert, err := kubeletClientCert(host)
	if err == nil && cert == nil {
		err = fault.New(fault.Failure, "%s does not exist", kubeletConf)
	}
	return err == nil && cert.CheckSignatureFrom(ca[0]) == nil, err
}

// SignedBy reports whether the first certificate in certPEM is signed by the first in caPEM.
func SignedBy(certPEM, caPEM []byte) (bool, error) {
	ca, err := ParseCertificates(caPEM)
	if err != nil {
		return false, err
	}
	certs, err := ParseCertificates(certPEM)
	if err != nil {
		return false, err
	}
	return certs[0].CheckSignatureFrom(ca[0]) == nil, nil
}
