package cluster

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster/health"
	"airlift/installer/cluster/wait"
)

// A Bootstrap is the TLS bootstrap of a node's kubelet: it requests a client certificate with a bootstrap
// token, and the controller manager approves and signs it.
type Bootstrap struct {
	Node       string
	Kubeconfig string // the path of the file that the kubelet writes with its certificate
	Token      string // the path of the kubeconfig with the bootstrap token
	Server     string // overrides the server of both files, as in Load
}

// requestAfter is after how long the wait also looks at the kubelet's request: most take a second.
const requestAfter = 5 * time.Second

// whereToLook is how to find out why the controller manager does nothing.
const whereToLook = " (its log is on a control plane, below /var/log/pods)"

// Wait waits for a kubeconfig with a certificate that the API server accepts.
func (b Bootstrap) Wait(ctx context.Context, with wait.Limit) (*Client, error) {
	var client *Client
	w := wait.For{
		What:    "the kubelet to get its certificate (" + b.Kubeconfig + ")",
		Short:   "the kubelet's certificate",
		Timeout: with.Timeout, Report: with.Report, Hint: health.KubeletHint + "; on a control plane: kubectl get csr",
		Epilogue: func(ctx context.Context) string {
			_, state := health.Kubelet(ctx, health.KubeletURL)
			return state
		},
	}
	began := time.Now()
	err := w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		c, err := Load(b.Kubeconfig, b.Server)
		switch {
		case errors.Is(err, fs.ErrNotExist) && time.Since(began) > requestAfter:
			return false, b.request(ctx), nil
		case errors.Is(err, fs.ErrNotExist):
			return false, "the file does not exist yet", nil
		case err != nil:
			return false, err.Error(), nil
		}
		// Every authenticated identity may read the version.
		err = c.API.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
		if apierrors.IsUnauthorized(err) {
			return false, "the API server rejects the certificate", nil
		}
		if err != nil {
			return false, err.Error(), nil
		}
		client = c
		return true, "", nil
	})
	return client, err
}

// request reads the kubelet's certificate requests, and returns the state of the last one.
func (b Bootstrap) request(ctx context.Context) string {
	c, err := Load(b.Token, b.Server)
	if err != nil {
		return err.Error()
	}
	list, err := c.API.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "the kubelet's request for a certificate cannot be read: " + err.Error()
	}
	return b.state(list.Items)
}

// state returns the state of the kubelet's last certificate request.
func (b Bootstrap) state(requests []certificatesv1.CertificateSigningRequest) string {
	var last *certificatesv1.CertificateSigningRequest
	for i := range requests {
		if r := &requests[i]; b.made(r) && (last == nil || !r.CreationTimestamp.Before(&last.CreationTimestamp)) {
			last = r
		}
	}
	if last == nil {
		return "the kubelet has not requested a certificate"
	}
	state := "the controller manager has not approved the request " + last.Name + whereToLook
	for _, c := range last.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved:
			state = "the controller manager has not signed the request " + last.Name + whereToLook
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return "the request " + last.Name + " was not signed: " + c.Reason + ": " + c.Message
		}
	}
	if len(last.Status.Certificate) > 0 {
		return "the request " + last.Name + " is signed, but the kubelet has not written " + b.Kubeconfig
	}
	return state
}

// made reports whether the kubelet made a request.
func (b Bootstrap) made(r *certificatesv1.CertificateSigningRequest) bool {
	if r.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return false
	}
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return false
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	return err == nil && parsed.Subject.CommonName == "system:node:"+b.Node
}
