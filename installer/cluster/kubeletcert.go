package cluster

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster/wait"
	"airlift/internal/fault"
)

// KubeletCertificate has the cluster sign a kubelet's request for a client certificate. A client
// with the kubelet's present certificate suffices: the controller manager approves what a node
// requests for itself.
func (c *Client) KubeletCertificate(ctx context.Context, csrPEM []byte, with wait.Limit) (certPEM []byte, err error) {
	block, _ := pem.Decode(csrPEM)
	if block == nil {
		return nil, fmt.Errorf("requesting the kubelet's certificate: the request is not PEM")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("requesting the kubelet's certificate: %w", err)
	}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
	if parsed.PublicKeyAlgorithm == x509.RSA {
		usages = append(usages, certificatesv1.UsageKeyEncipherment)
	}
	requests := c.API.CertificatesV1().CertificateSigningRequests()
	var made *certificatesv1.CertificateSigningRequest
	err = wait.Retry(ctx, func() (err error) {
		made, err = requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: csrPEM, SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Usages: usages,
			},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("requesting the kubelet's certificate: %w", err)
	}
	w := wait.For{
		What: "the controller manager to sign the request " + made.Name, Timeout: with.Timeout, Report: with.Report, Interval: time.Second,
		Hint: "see the request on a control plane: kubectl describe csr " + made.Name,
	}
	err = w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		r, err := requests.Get(ctx, made.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error(), nil
		}
		approved := false
		for _, cond := range r.Status.Conditions {
			switch {
			case cond.Type == certificatesv1.CertificateApproved && cond.Status == corev1.ConditionTrue:
				approved = true
			case cond.Type == certificatesv1.CertificateDenied, cond.Type == certificatesv1.CertificateFailed:
				return false, "", fault.New(fault.Failure, "the request %s was not signed: %s: %s", made.Name, cond.Reason, cond.Message).Hint("see it on a control plane: kubectl describe csr " + made.Name)
			}
		}
		certPEM = r.Status.Certificate
		if approved {
			return len(certPEM) > 0, "it is approved, but not signed yet", nil
		}
		return false, "it is not approved yet", nil
	})
	return certPEM, err
}
