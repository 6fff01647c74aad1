package pki

import (
	"bytes"
	"io/fs"
	"path"
	"time"

	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/internal/documents"
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
	if err := p.err(); err != nil {
		return Result{}, err
	}
	return result, nil
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
		if cl.CAFile != "" || bytes.Equal(cl.CAData, bundle) {
			result.Kept = append(result.Kept, file)
			continue
		}
		if data, err = withTrust(data, bundle); err != nil {
			return unusable(file, err)
		}
		result.Files = append(result.Files, File{Path: file, Data: data, Mode: keyMode})
	}
	return nil
}

// withTrust sets the CA in the current context of a valid kubeconfig, and keeps everything else.
func withTrust(data, caPEM []byte) ([]byte, error) {
	var doc map[string]any
	if err := documents.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	ctx, err := named(doc, "contexts", "context", doc["current-context"])
	if err != nil {
		return nil, err
	}
	if err := setTrust(doc, ctx, caPEM); err != nil {
		return nil, err
	}
	return yaml.Marshal(doc)
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
	file     string // kubelet.conf, or the file to which it refers
	inline   bool   // kubelet.conf contains the certificate
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
	file := path.Join(config.KubernetesDir, "kubelet.conf")
	data, err := read(host, file)
	if err != nil {
		return nil, err
	}
	_, u, err := parseKubeconfig(file, data)
	if err != nil {
		return nil, err
	}
	key, err := newKey(algorithmOf(old.PublicKey))
	if err != nil {
		return nil, err
	}
	r := &KubeletRequest{file: file, inline: u.CertFile == ""}
	if !r.inline {
		r.file = u.CertFile
	}
	if r.key, err = encodeKey(key); err != nil {
		return nil, err
	}
	der, err := newRequest(renewed(cfg, "kubelet", old), key)
	r.CSR = encodePEM(requestType, der)
	return r, err
}

// Files returns the files with the certificate that answers the request.
func (r *KubeletRequest) Files(host fs.FS, now time.Time, certPEM []byte) (Result, error) {
	if !r.inline {
		dated := datedCertFile(r.file, now)
		return Result{Files: []File{
			{Path: dated, Data: append(bytes.Clone(certPEM), r.key...), Mode: keyMode},
			{Path: r.file, Link: dated},
		}}, nil
	}
	data, err := read(host, r.file)
	if err != nil {
		return Result{}, err
	}
	cl, _, err := parseKubeconfig(r.file, data)
	if err != nil {
		return Result{}, err
	}
	if data, err = withClient(data, cl.CAData, certPEM, r.key); err != nil {
		return Result{}, unusable(r.file, err)
	}
	return Result{Files: []File{{Path: r.file, Data: data, Mode: keyMode}}}, nil
}

// KubeletSignedBy reports whether a CA has signed the kubelet's client certificate.
func KubeletSignedBy(host fs.FS, caPEM []byte) (bool, error) {
	ca, err := ParseCertificates(caPEM)
	if err != nil {
		return false, err
	}
	cert, err := kubeletClientCert(host)
	if err == nil && cert == nil {
		err = fault.New(fault.Failure, "%s does not exist", path.Join(config.KubernetesDir, "kubelet.conf"))
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
