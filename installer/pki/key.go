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
	"slices"
	"strings"

	"airlift/installer/config"
)

// DefaultAlgorithm of new keys. kubeadm's default is RSA-2048; an ECDSA key
// is made in microseconds instead of a second on a small machine, makes every
// TLS handshake cheaper, and is as strong as RSA-3072.
const DefaultAlgorithm = "ECDSA-P256"

// algorithm is what a new key below the CA ca is made with. Where the
// configuration does not say, as kubeadm v1beta3's cannot, the key is of the
// CA's kind: so a control plane that joins a cluster of RSA keys gets RSA keys.
// ca is the zero authority for a key that no CA stands above.
func algorithm(cfg *config.Config, ca authority) string {
	if cfg.EncryptionAlgorithm != "" {
		return cfg.EncryptionAlgorithm
	}
	if ecdsaKeys, said := cfg.FeatureGates["PublicKeysECDSA"]; said {
		// v1beta3's way to say it.
		if ecdsaKeys {
			return "ECDSA-P256"
		}
		return "RSA-2048"
	}
	if ca.cert != nil {
		return algorithmBelow(ca.cert.PublicKey)
	}
	return DefaultAlgorithm
}

// algorithmBelow is the kind of key that goes with a CA's: its own, but for
// the long RSA keys that people give to CAs.
func algorithmBelow(public crypto.PublicKey) string {
	kind := algorithmOf(public)
	if strings.HasPrefix(kind, "RSA") {
		return "RSA-2048"
	}
	return kind
}

// algorithmOf names a key's kind, the nearest where there is no name for it.
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

// newKey makes a key; algorithm is one of kubeadm v1beta4's names.
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

// parseKey returns the first private key in data.
func parseKey(data []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
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
		return nil, fmt.Errorf("it holds a %T, but only RSA and ECDSA keys can be used", key)
	}
	return nil, errors.New("it holds no PEM private key")
}

func parsePublicKey(data []byte) (crypto.PublicKey, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != publicKeyType {
		return nil, errors.New("it holds no PEM public key")
	}
	return x509.ParsePKIXPublicKey(block.Bytes)
}

// parseCerts returns all certificates in data, at least one.
func parseCerts(data []byte) ([]*x509.Certificate, error) {
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
		return nil, errors.New("it holds no PEM certificate")
	}
	return certs, nil
}

// matches says whether a certificate's public key belongs to the private key.
func matches(public crypto.PublicKey, key crypto.Signer) bool {
	p, ok := public.(interface{ Equal(crypto.PublicKey) bool })
	return ok && p.Equal(key.Public())
}

// CAHashes returns what `--discovery-token-ca-cert-hash` pins for each CA
// certificate of a bundle: "sha256:" and the hex digest of its DER subject public
// key info. A bundle has two while a cluster replaces its CA.
func CAHashes(caPEM []byte) ([]string, error) {
	certs, err := parseCerts(caPEM)
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
