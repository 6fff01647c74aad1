package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"airlift/installer/cluster"
	"airlift/internal/dialer"
)

// ObjectsFor returns Objects for a cluster that has nodes already: workers, which joined long ago, are recorded with the addresses that
// they have. The plan of the change shows these, and who runs it confirms them. An address that two nodes report is recorded for neither.
// root is the host of a control plane.
func (s *Settings) ObjectsFor(ctx context.Context, c *cluster.Client, root fs.FS) ([]runtime.Object, error) {
	m, err := c.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, recordMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		m, err = emptyRecord(), nil
	}
	if err != nil {
		return nil, err
	}
	now, err := s.siteOf(ctx, c, root, m)
	if err != nil {
		return nil, err
	}
	added := emptyRecord()
	for i := range now.nodes {
		n := &now.nodes[i]
		_, has := now.records.of(n)
		if _, plane := n.Labels[cluster.ControlPlaneLabel]; has || plane {
			continue
		}
		if one := (record{UID: n.UID, Addresses: now.unshared(n)}); len(one.Addresses) > 0 {
			if err := set(added, nil, n.Name, one, nil); err != nil {
				return nil, err
			}
		}
	}
	objects := Objects()
	return append(objects[:len(objects)-1], added), nil
}

// unshared returns the addresses that a node reports, and that a node without a record could have.
func (s *site) unshared(n *corev1.Node) (list []string) {
	for _, a := range addressesOf(n) {
		if s.free(a, n.Name) == nil && !slices.Contains(list, a.String()) {
			list = append(list, a.String())
		}
	}
	slices.Sort(list)
	return list
}

func addressesOf(n *corev1.Node) (list []netip.Addr) {
	for _, one := range n.Status.Addresses {
		if a, err := netip.ParseAddr(one.Address); err == nil {
			list = append(list, a.Unmap())
		}
	}
	return list
}

// probeTime limits the connection to one kubelet.
const probeTime = 5 * time.Second

// Unverified returns why API servers could not verify kubelets, a reason for each one. It connects as they do.
func Unverified(ctx context.Context, ca []byte, nodes []cluster.NodeState) (reasons []string) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	found := make([]chan error, len(nodes))
	for i, n := range nodes {
		found[i] = make(chan error, 1)
		go func() { found[i] <- probe(ctx, roots, n) }()
	}
	for i, n := range nodes {
		if err := <-found[i]; err != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", n.Name, err))
		}
	}
	return reasons
}

func probe(ctx context.Context, roots *x509.CertPool, n cluster.NodeState) error {
	if len(n.Addresses) == 0 || n.KubeletPort == 0 {
		return errors.New("its address or the port of its kubelet is not known")
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	conn, err := dialer.Dial(ctx, "tcp", net.JoinHostPort(n.Addresses[0], strconv.Itoa(int(n.KubeletPort))))
	if err != nil {
		return err
	}
	defer conn.Close()
	return tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: n.Addresses[0], MinVersion: tls.VersionTLS12}).HandshakeContext(ctx)
}
