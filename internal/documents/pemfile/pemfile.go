// Package pemfile explains what a file is that should have a certificate or a private key in PEM.
package pemfile

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Kind is what a file should have.
type Kind string

// Kinds of PEM files.
const (
	Certificate Kind = "certificate"
	PrivateKey  Kind = "private key"
	PublicKey   Kind = "public key"
)

// An Error is the reason why a file has no certificate or key.
type Error struct {
	is, hint string // hint has FILE for the file's name
}

func (e *Error) Error() string { return e.is }

// Hint returns what converts the file, or nothing for an unknown one.
func (e *Error) Hint(file string) string { return strings.ReplaceAll(e.hint, "FILE", file) }

// Check returns an *Error if content has no certificate or no private key that can be used.
func Check(content []byte, want Kind) error {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		_, err := x509.ParseCertificate(block.Bytes)
		isKey := isDERKey(block.Bytes) && strings.HasSuffix(block.Type, "PRIVATE KEY")
		if want == Certificate && block.Type == "CERTIFICATE" && err == nil || want == PrivateKey && isKey {
			return nil
		}
	}
	return Explain(content, want)
}

// HintOf returns the hint of an *Error in err's chain, or otherwise if it has none.
func HintOf(err error, file, otherwise string) string {
	if e := (*Error)(nil); errors.As(err, &e) {
		return cmp.Or(e.Hint(file), otherwise)
	}
	return otherwise
}

// Explain returns the error for content that has no PEM block of the kind that can be used.
func Explain(content []byte, want Kind) *Error {
	for _, f := range []func([]byte, Kind) *Error{text, blocks, binary} {
		if e := f(content, want); e != nil {
			return e
		}
	}
	return &Error{fmt.Sprintf("it contains no PEM %s", want), ""}
}

// text explains a file that an editor, a copy or a Secret changed.
func text(content []byte, want Kind) *Error {
	trimmed := bytes.TrimSpace(content)
	block, _ := pem.Decode(content)
	unpacked, err := base64.StdEncoding.DecodeString(string(bytes.Join(bytes.Fields(trimmed), nil)))
	switch {
	case len(trimmed) == 0:
		return &Error{"it is empty", "copy it again"}
	case bytes.HasPrefix(content, []byte("\xff\xfe")):
		return &Error{"it is a text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE > FILE.pem"}
	case err == nil && bytes.HasPrefix(bytes.TrimSpace(unpacked), []byte("-----BEGIN ")):
		return &Error{"it is PEM encoded once more in base64, as in a Secret", "decode it: base64 -d FILE > FILE.pem"}
	case bytes.HasPrefix(trimmed, []byte("AGE-SECRET-KEY-")), bytes.HasPrefix(trimmed, []byte("age1")):
		return &Error{"it is a key of age", fmt.Sprintf("give the %s in PEM", want)}
	case bytes.HasPrefix(trimmed, []byte("PuTTY-User-Key-File")):
		return &Error{"it is a key of PuTTY", "convert it: puttygen FILE -O private-openssh -o FILE.key, then ssh-keygen -p -m PKCS8 -f FILE.key"}
	case bytes.HasPrefix(trimmed, []byte("ssh-")), bytes.HasPrefix(trimmed, []byte("ecdsa-sha2-")):
		return &Error{"it is a public key of SSH", fmt.Sprintf("give the %s in PEM", want)}
	case block == nil && bytes.Contains(content, []byte("-----BEGIN ")):
		return &Error{"its PEM is damaged: each line must begin in the first column, and no line may be missing", "copy it again, without indentation"}
	}
	return nil
}

// blocks explains a PEM file with something else.
func blocks(content []byte, want Kind) *Error {
	var types []string
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		types = append(types, block.Type)
		if want == PrivateKey && (block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED")) {
			return &Error{"it is an encrypted private key, and must be decrypted first", decrypt}
		}
	}
	if len(types) == 0 {
		return nil
	}
	has := func(kind string) bool { return slices.Contains(types, kind) }
	isKey := slices.ContainsFunc(types, func(t string) bool { return strings.HasSuffix(t, "PRIVATE KEY") })
	switch {
	case has("OPENSSH PRIVATE KEY") && want == PrivateKey:
		return &Error{"it is a private key in the format of OpenSSH", "convert a copy: ssh-keygen -p -m PKCS8 -f FILE"}
	case has("TRUSTED CERTIFICATE") && want == Certificate:
		return &Error{"it is a certificate in the trusted format of OpenSSL", "convert it: openssl x509 -in FILE -out FILE.pem"}
	case (has("PKCS7") || has("CMS")) && want == Certificate:
		return &Error{"it is a PKCS#7 file", "convert it: openssl pkcs7 -print_certs -in FILE -out FILE.pem"}
	case has("CERTIFICATE REQUEST") || has("NEW CERTIFICATE REQUEST"):
		return &Error{"it is a certificate signing request", fmt.Sprintf("give the %s; a request must be signed first", want)}
	case isKey && want == Certificate:
		return &Error{"it is a private key, not a certificate", "give the file of the certificate; the private key belongs in the other file"}
	case isKey && want == PublicKey:
		return &Error{"it is a private key, not a public key", "get the public key: openssl pkey -pubout -in FILE -out FILE.pub"}
	case has("CERTIFICATE") && want != Certificate:
		return &Error{"it is a certificate, not a " + string(want), fmt.Sprintf("give the file of the %s; the certificate belongs in the other file", want)}
	case has(strings.ToUpper(string(want))) || isKey:
		return &Error{fmt.Sprintf("its PEM %s cannot be read", want), "copy it again; see what OpenSSL reports: " + show(want)}
	}
	return &Error{fmt.Sprintf("it contains %q, and no %s", types[0], want), fmt.Sprintf("give the file of the %s", want)}
}

const decrypt = "decrypt it: openssl pkey -in FILE -out FILE.decrypted"

// show is a command that prints a file.
func show(k Kind) string {
	switch k {
	case Certificate:
		return "openssl x509 -noout -text -in FILE"
	case PublicKey:
		return "openssl pkey -pubin -noout -text -in FILE"
	}
	return "openssl pkey -noout -in FILE"
}

// binary returns the error for a file that is not a text file.
func binary(content []byte, want Kind) *Error {
	certificates, err := x509.ParseCertificates(content)
	isCertificate := err == nil && len(certificates) > 0
	switch {
	case isCertificate && want == Certificate:
		return &Error{"it is a certificate in DER, not in PEM", "convert it: openssl x509 -inform der -in FILE -out FILE.pem"}
	case isCertificate:
		return &Error{"it is a certificate, not a " + string(want), fmt.Sprintf("give the file of the %s", want)}
	case isDERKey(content) && want == PrivateKey:
		return &Error{"it is a private key in DER, not in PEM", "convert it: openssl pkey -inform der -in FILE -out FILE.pem"}
	case isDERKey(content):
		return &Error{"it is a private key, not a " + string(want), fmt.Sprintf("give the file of the %s", want)}
	case bytes.HasPrefix(content, []byte("\xfe\xed\xfe\xed")):
		return &Error{"it is a Java keystore", "convert it: keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12; then use openssl pkcs12"}
	case begins(content, 2, 1, 3): // the version of PKCS#12
		return &Error{"it is a PKCS#12 file (.p12, .pfx), not PEM", pkcs12(want)}
	case begins(content, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 7, 2) && want == Certificate: // signedData
		return &Error{"it is a PKCS#7 file in DER", "convert it: openssl pkcs7 -inform der -print_certs -in FILE -out FILE.pem"}
	case bytes.Contains(content[:min(len(content), 32)], []byte{6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 5}) && want == PrivateKey: // PKCS#5
		return &Error{"it is an encrypted private key in DER", "decrypt it: openssl pkey -inform der -in FILE -out FILE.decrypted"}
	}
	if _, err := x509.ParsePKIXPublicKey(content); err == nil && want == PublicKey {
		return &Error{"it is a public key in DER, not in PEM", "convert it: openssl pkey -pubin -inform der -in FILE -out FILE.pem"}
	}
	return nil
}

func isDERKey(content []byte) bool {
	_, err8 := x509.ParsePKCS8PrivateKey(content)
	_, err1 := x509.ParsePKCS1PrivateKey(content)
	_, errEC := x509.ParseECPrivateKey(content)
	return err8 == nil || err1 == nil || errEC == nil
}

// begins reports whether content is a sequence in DER or BER with these first bytes.
func begins(content []byte, first ...byte) bool {
	if len(content) < 2 || content[0] != 0x30 {
		return false
	}
	length := 2
	if content[1] > 0x80 {
		length += int(content[1] - 0x80)
	}
	return len(content) > length && bytes.HasPrefix(content[length:], first)
}

func pkcs12(want Kind) string {
	if want == Certificate {
		return "extract it: openssl pkcs12 -nokeys -in FILE -out FILE.pem"
	}
	return "extract it: openssl pkcs12 -nocerts -nodes -in FILE -out FILE.pem"
}
