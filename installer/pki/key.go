package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/internal/documents/pemfile"
)

// DefaultAlgorithm is the algorithm of new keys. kubeadm's default is RSA-2048.
// On a small machine, an ECDSA key takes microseconds instead of a second; it
// makes every TLS handshake cheaper, and is as strong as RSA-3072.
const DefaultAlgorithm = "ECDSA-P256"

// algorithm is the algorithm of a new key for a certificate of ca. If the configuration does not
// set one, as with kubeadm's v1beta3, the new key gets the algorithm of the CA's key. So a control
// plane that joins a cluster with RSA keys gets RSA keys. ca is the zero authority for a key
// without a CA.
func algorithm(cfg *config.Config, ca authority) string {
	if cfg.EncryptionAlgorithm != "" {
		return cfg.EncryptionAlgorithm
	}
	if ecdsaKeys, set := cfg.FeatureGates["PublicKeysECDSA"]; set {
		// The field's predecessor in v1beta3.
		if ecdsaKeys {
			return "ECDSA-P256"
		}
		return "RSA-2048"
	}
	if ca.cert != nil {
		return algorithmFor(ca.cert.PublicKey)
	}
	return DefaultAlgorithm
}

// algorithmFor is the algorithm for certificates of a CA with this public key: the
// same, but RSA-2048 also for the longer RSA keys that CAs may have.
func algorithmFor(public crypto.PublicKey) string {
	kind := algorithmOf(public)
	if strings.HasPrefix(kind, "RSA") {
		return "RSA-2048"
	}
	return kind
}

// algorithmOf is the name of a key's algorithm, or the nearest name.
func algorithmOf(public crypto.PublicKey) string {
	switch k := public.(type) {
	case *ecdsa.PublicKey:
		if k.Curve.Params().BitSize > 256 {
			return "ECDSA-P384"
		}
		return "ECDSA-P256"
	case *rsa.PublicKey:
		switch bits := k.N.BitLen(); {
		case bits > 3072:
			return "RSA-4096"
		case bits > 2048:
			return "RSA-3072"
		}
		return "RSA-2048"
	}
	return DefaultAlgorithm
}

// newKey generates a key; algorithm is one of kubeadm v1beta4's names.
func newKey(algorithm string) (crypto.Signer, error) {
	switch algorithm {
	case "ECDSA-P256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSA-P384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "RSA-2048":
		return rsa.GenerateKey(rand.Reader, 2048)
	case "RSA-3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA-4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	}
	return nil, fmt.Errorf("unknown encryption algorithm %q", algorithm)
}

// PEM types as Kubernetes writes them (client-go, util/keyutil).
const (
	ecKeyType     = "EC PRIVATE KEY"  // SEC 1
	rsaKeyType    = "RSA PRIVATE KEY" // PKCS #1
	anyKeyType    = "PRIVATE KEY"     // PKCS #8, read only
	publicKeyType = "PUBLIC KEY"
	certType      = "CERTIFICATE"
	requestType   = "CERTIFICATE REQUEST" // as OpenSSL writes it too
)

func encodeKey(key crypto.Signer) ([]byte, error) {
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		der, err := x509.MarshalECPrivateKey(k)
		return encodePEM(ecKeyType, der), err
	case *rsa.PrivateKey:
		return encodePEM(rsaKeyType, x509.MarshalPKCS1PrivateKey(k)), nil
	}
	return nil, fmt.Errorf("cannot encode a %T", key)
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// encodeCerts encodes certificates one after the other, as in a CA file.
func encodeCerts(certs []*x509.Certificate) []byte {
	var data []byte
	for _, cert := range certs {
		data = append(data, encodePEM(certType, cert.Raw)...)
	}
	return data
}

// parseKey returns the first private key in data.
func parseKey(data []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		if block.Headers["Proc-Type"] != "" {
			break // encrypted
		}
		switch block.Type {
		case ecKeyType:
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case rsaKeyType:
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case anyKeyType:
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		switch key := key.(type) {
		case *ecdsa.PrivateKey:
			return key, nil
		case *rsa.PrivateKey:
			return key, nil
		}
		return nil, fmt.Errorf("it contains a %T, but only RSA and ECDSA keys can be used", key)
	}
	return nil, pemfile.Explain(data, pemfile.PrivateKey)
}

func parsePublicKey(data []byte) (crypto.PublicKey, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != publicKeyType {
		return nil, pemfile.Explain(data, pemfile.PublicKey)
	}
	return x509.ParsePKIXPublicKey(block.Bytes)
}

// ParseCertificates returns all certificates in data, at least one.
func ParseCertificates(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certType {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, pemfile.Explain(data, pemfile.Certificate)
	}
	return certs, nil
}

// matches reports whether a public key belongs to the private key.
func matches(public crypto.PublicKey, key crypto.Signer) bool {
	p, ok := public.(interface{ Equal(crypto.PublicKey) bool })
	return ok && p.Equal(key.Public())
}

// CAHashes returns the values of --discovery-token-ca-cert-hash for the CA
// certificates of a bundle: "sha256:" and the hexadecimal digest of the DER
// subject public key info. A bundle has two while a cluster rotates its CA.
func CAHashes(caPEM []byte) ([]string, error) {
	certs, err := ParseCertificates(caPEM)
	if err != nil {
		return nil, fmt.Errorf("hashing the CA's public key: %w", err)
	}
	var hashes []string
	for _, cert := range certs {
		sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		if hash := "sha256:" + hex.EncodeToString(sum[:]); !slices.Contains(hashes, hash) {
			hashes = append(hashes, hash)
		}
	}
	return hashes, nil
}

// ProveKey returns an error unless the key in keyPEM signs for the first certificate in caPEM.
func ProveKey(caPEM, keyPEM []byte) error {
	certs, err := ParseCertificates(caPEM)
	if err != nil {
		return err
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return err
	}
	if !matches(certs[0].PublicKey, key) {
		return errors.New("it is the key of another certificate")
	}
	// It verifies the signature: a key that only claims to have this public key fails.
	_, err = x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1)}, certs[0], key.Public(), key)
	return err
}
