package serving

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"golang.org/x/sync/errgroup"

	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/daemon"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

const (
	// identityTime is how long a certificate of the process is used. It is valid for twice that time.
	identityTime = 24 * time.Hour
	// watchTime is the time of a watch, less than the limit of a request. Requests that were refused are judged again after it.
	watchTime = 20 * time.Second
	pause     = 2 * time.Second // after an error, and for a node that is about to register
)

// An Approver is the process of one control plane.
type Approver struct {
	settings *Settings
	root     fs.FS // of the host
	log      *slog.Logger
	// addresses returns the addresses of this host's interfaces.
	addresses func() ([]net.Addr, error)
	// credentials returns the client certificates of this host's kubelet.
	credentials func() ([]string, error)
	now         func() time.Time

	client  *cluster.Client
	created time.Time         // of the client's certificate
	refused map[string]string // reasons that are in the log, by the user who requests
	failed  string            // the last error in the log
}

// Run approves requests until ctx ends.
func Run(ctx context.Context, log *slog.Logger) error {
	a, err := NewApprover(os.DirFS("/"), net.InterfaceAddrs, log)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return daemon.KeepAlive(ctx) })
	group.Go(func() error { a.run(ctx); return nil })
	return group.Wait()
}

// NewApprover returns the process of a control plane, whose files are in root. addresses returns the addresses of its interfaces.
func NewApprover(root fs.FS, addresses func() ([]net.Addr, error), log *slog.Logger) (*Approver, error) {
	s, err := readSettings(root)
	if err != nil {
		return nil, err
	}
	return newApprover(s, root, addresses, log), nil
}

// readSettings reads what Files has written on a control plane.
func readSettings(root fs.FS) (*Settings, error) {
	data, err := fs.ReadFile(root, strings.TrimPrefix(SettingsPath, "/"))
	if err != nil {
		return nil, fault.New(fault.Usage, "reading the settings: %w", err).Hint("init, join and reconfigure write them on control planes of a cluster with the profile hardened: ./install docs hardening")
	}
	s, err := decode(data)
	if err != nil {
		return nil, fault.New(fault.Failure, "reading %s: %w", SettingsPath, err).Hint("write the file again: run init or join again with the same flags")
	}
	return s, nil
}

func newApprover(s *Settings, root fs.FS, addresses func() ([]net.Addr, error), log *slog.Logger) *Approver {
	return &Approver{
		settings: s, root: root, log: log, addresses: addresses, now: time.Now, refused: map[string]string{},
		credentials: func() ([]string, error) { return kubeletCredentials(root) },
	}
}

// Round judges all requests once. again reports whether to judge again in a moment.
func (a *Approver) Round(ctx context.Context) (again bool, err error) {
	_, again, err = a.round(ctx)
	return again, err
}

// run judges requests until ctx ends. An error is in the log once, until all is well or another one follows.
func (a *Approver) run(ctx context.Context) {
	for ctx.Err() == nil {
		version, soon, err := a.round(ctx)
		if err == nil && !soon {
			err = a.wait(ctx, version)
		}
		if untrusted := (*tls.CertificateVerificationError)(nil); apierrors.IsUnauthorized(err) || errors.As(err, &untrusted) {
			a.client = nil // the CA was replaced
		}
		if ctx.Err() == nil {
			a.report(err)
		}
		if err == nil && !soon {
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (a *Approver) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != a.failed {
		a.log.Warn("requests cannot be judged", "error", text, "hint", fault.Hint(err))
	}
	a.failed = text
}

// connect returns a client with a certificate of the process.
func (a *Approver) connect() (*cluster.Client, error) {
	if a.client != nil && time.Since(a.created) < identityTime {
		return a.client, nil
	}
	cfg := new(config.Config)
	cfg.CertificatesDir, cfg.ClusterName = a.settings.CertificatesDir, "kubernetes"
	kubeconfig, err := pki.UserKubeconfig(cfg, a.root, time.Now(), pki.User{Name: User, Validity: 2 * identityTime})
	if err != nil {
		return nil, err
	}
	client, err := cluster.New(kubeconfig, a.settings.Server)
	if err == nil {
		a.client, a.created = client, time.Now()
	}
	return client, err
}

// onlyServing selects the requests of kubelets for serving certificates.
var onlyServing = metav1.ListOptions{FieldSelector: "spec.signerName=" + certificatesv1.KubeletServingSignerName}

// round judges all requests. version is where a watch begins. soon reports whether to judge again in a moment.
func (a *Approver) round(ctx context.Context) (version string, soon bool, err error) {
	client, err := a.connect()
	if err != nil {
		return "", false, err
	}
	list, err := client.API.CertificatesV1().CertificateSigningRequests().List(ctx, onlyServing)
	if err != nil {
		return "", false, fmt.Errorf("reading the requests: %w", err)
	}
	list.Items = slices.DeleteFunc(list.Items, func(r certificatesv1.CertificateSigningRequest) bool { return !isPending(&r) })
	reasons := map[string]string{}
	var now *site
	for i := range list.Items {
		r := &list.Items[i]
		err := a.judge(ctx, client, &now, r)
		switch refused := (refusal{}); {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err): // another control plane was faster
			soon, now = true, nil
		case errors.Is(err, errNoNode) && time.Since(r.CreationTimestamp.Time) < registrationTime:
			soon = true
		case errors.As(err, &refused):
			reasons[r.Spec.Username] = refused.Error()
		case err != nil:
			return "", false, err
		}
	}
	for _, by := range list.Items {
		name := by.Spec.Username
		if reason := reasons[name]; reason != "" && reason != a.refused[name] {
			node := strings.TrimPrefix(name, nodeUser)
			a.log.Warn("a serving certificate is not approved", "request", by.Name, "by", name, "reason", reason,
				"hint", "to see what is recorded for the node, and to change it: airlift node addresses "+fault.Word(node))
		}
	}
	a.refused = reasons
	return list.ResourceVersion, soon, nil
}

// A refusal is why a request is not approved.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// isPending reports whether nobody has decided about a request.
func isPending(r *certificatesv1.CertificateSigningRequest) bool {
	return len(r.Status.Conditions) == 0 && len(r.Status.Certificate) == 0
}

// judge approves a request, or returns a refusal. A refused request stays: a kubelet whose request is denied makes another one every
// half minute, and one that waits is approved as soon as an administrator has recorded its addresses.
func (a *Approver) judge(ctx context.Context, client *cluster.Client, now **site, csr *certificatesv1.CertificateSigningRequest) error {
	r, err := parse(csr)
	if err != nil {
		return refusal{err}
	}
	if *now == nil {
		if *now, err = a.site(ctx, client); err != nil {
			return err
		}
	}
	s := *now
	pinned, err := s.judge(r)
	if err != nil {
		return refusal{err}
	}
	if pinned != nil {
		if err := set(s.stored, s.records, r.node, *pinned, s.nodes); err != nil {
			return err
		}
		if s.stored, err = client.API.CoreV1().ConfigMaps(metav1.NamespaceSystem).Update(ctx, s.stored, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("recording the addresses of node %s: %w", r.node, err)
		}
		s.records[r.node] = *pinned
		a.log.Info("the addresses of a node are recorded", "node", r.node, "addresses", strings.Join(pinned.Addresses, ","))
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "AddressesOfNode",
		Message: "Airlift on " + a.settings.Node + ": the names and addresses belong to the node", LastUpdateTime: metav1.Now(),
	})
	if _, err := client.API.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("approving %s: %w", csr.Name, err)
	}
	a.log.Info("approved a serving certificate", "request", csr.Name, "node", r.node)
	return nil
}

// site reads what decides about requests.
func (a *Approver) site(ctx context.Context, client *cluster.Client) (*site, error) {
	m, err := readRecords(ctx, client)
	if err != nil {
		return nil, err
	}
	s, err := a.settings.siteOf(ctx, client, a.root, m)
	if err != nil {
		return nil, err
	}
	s.now = a.now()
	return s, a.ofHost(s)
}

// ofHost adds what this host knows about its own node.
func (a *Approver) ofHost(s *site) (err error) {
	if s.credentials, err = a.credentials(); err != nil {
		return fmt.Errorf("reading the client certificate of this host's kubelet: %w", err)
	}
	own, err := a.addresses()
	if err != nil {
		return fmt.Errorf("reading the addresses of this host: %w", err)
	}
	for _, o := range own {
		p, err := netip.ParsePrefix(o.String())
		if err != nil {
			continue
		}
		a := p.Addr().Unmap()
		if usable(a) == nil && !slices.ContainsFunc(s.ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			s.ownAddresses = append(s.ownAddresses, a)
		}
	}
	return nil
}

// kubeletCredentials returns the client certificates of a host's kubelet as API servers name them, also those that it has rotated
// since a request; nil if they are not in files.
func kubeletCredentials(root fs.FS) (list []string, err error) {
	file := pki.KubeletClientFile(root)
	if file == "" {
		return nil, nil
	}
	files, err := fs.Glob(root, strings.TrimPrefix(path.Dir(file), "/")+"/kubelet-client-*.pem")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := fs.ReadFile(root, file)
		if errors.Is(err, fs.ErrNotExist) { // rotated just now
			continue
		}
		if err != nil {
			return nil, err
		}
		if certs, err := pki.ParseCertificates(data); err == nil {
			list = append(list, fmt.Sprintf("X509SHA256=%x", sha256.Sum256(certs[0].Raw)))
		}
	}
	return list, nil
}

// wait waits for a new request, at most watchTime.
func (a *Approver) wait(ctx context.Context, version string) error {
	options := onlyServing
	options.ResourceVersion, options.TimeoutSeconds = version, new(int64(watchTime.Seconds()))
	w, err := a.client.API.CertificatesV1().CertificateSigningRequests().Watch(ctx, options)
	if err != nil {
		return fmt.Errorf("watching the requests: %w", err)
	}
	defer w.Stop()
	for {
		select {
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if event.Type == watch.Error {
				return fmt.Errorf("watching the requests: %w", apierrors.FromObject(event.Object))
			}
			if r, ok := event.Object.(*certificatesv1.CertificateSigningRequest); ok && event.Type == watch.Added && isPending(r) {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}
