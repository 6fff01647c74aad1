package model

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"time"
)

// selfSigned serves TLS with a certificate that the component made.
func (h *Host) selfSigned(l net.Listener) (net.Listener, error) {
	cert, err := ownCertificate()
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, SessionTicketsDisabled: true}), err
}

var ownCertificate = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1000, 0, 0), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})
