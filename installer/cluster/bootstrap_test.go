package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The wait for a kubelet's certificate reports the state of this node's last request.
func TestBootstrapState(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(name, node string, age time.Duration, status certificatesv1.CertificateSigningRequestStatus) certificatesv1.CertificateSigningRequest {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node}}, key)
		if err != nil {
			t.Fatal(err)
		}
		return certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			},
			Status: status,
		}
	}
	status := func(certificate string, conditions ...certificatesv1.RequestConditionType) (s certificatesv1.CertificateSigningRequestStatus) {
		for _, c := range conditions {
			s.Conditions = append(s.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: c, Reason: "Why", Message: "because"})
		}
		s.Certificate = []byte(certificate)
		return s
	}
	approved := certificatesv1.CertificateApproved
	serving := request("csr-serving", "node1", 0, status(""))
	serving.Spec.SignerName = certificatesv1.KubeletServingSignerName
	damaged := request("csr-damaged", "node1", 0, status(""))
	damaged.Spec.Request = []byte("no PEM")
	for want, requests := range map[string][]certificatesv1.CertificateSigningRequest{
		"the kubelet has not requested a certificate":                                                                    {request("csr-a", "node2", 0, status("")), serving, damaged},
		"the controller manager has not approved the request csr-b (its log is on a control plane, below /var/log/pods)": {request("csr-b", "node1", 0, status("")), request("csr-a", "node1", time.Minute, status("PEM", approved))},
		"the controller manager has not signed the request csr-a (its log is on a control plane, below /var/log/pods)":   {request("csr-a", "node1", 0, status("", approved))},
		"the request csr-a was not signed: Why: because":                                                                 {request("csr-a", "node1", 0, status("", approved, certificatesv1.CertificateFailed))},
		"the request csr-a is signed, but the kubelet has not written /etc/kubelet.conf":                                 {request("csr-a", "node1", 0, status("PEM", approved))},
	} {
		if got := (Bootstrap{Node: "node1", Kubeconfig: "/etc/kubelet.conf"}).state(requests); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
