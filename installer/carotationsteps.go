package installer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
)

const controllerManager = "kube-controller-manager"

// nextCAs puts the old and the new CAs on this host. The first control plane creates the
// new CAs, and stores them for the others.
func (r *CARotation) nextCAs(ctx context.Context) error {
	key, err := r.rotationKey()
	if err != nil {
		return err
	}
	received, err := r.client.NextCAs(ctx, key)
	if err != nil {
		return err
	}
	if r.state != nil && received == nil {
		return fault.New(fault.Failure, "run it on the control plane where the rotation began", "the cluster does not have the new CAs")
	}
	made, err := pki.NewCAs(r.config, r.files(), time.Now(), received)
	if err != nil {
		return err
	}
	keyFile := pki.File{Path: pki.RotationKeyPath(r.config), Data: []byte(key + "\n"), Mode: 0o600}
	if err := r.write(append([]pki.File{keyFile}, made.Files...)...); err != nil {
		return err
	}
	files, err := pki.NextCAFiles(r.config, r.files())
	if err != nil {
		return err
	}
	changed, err := r.client.StoreNextCAs(ctx, key, files)
	r.changed(changed)
	if err != nil || r.state != nil {
		return err
	}
	state := &cluster.CARotation{Stage: RotationDistribute}
	if state.Former, state.Next, err = pki.RotationCAs(r.config, r.files(), "ca"); err != nil {
		return err
	}
	if state.FormerFrontProxy, state.NextFrontProxy, err = pki.RotationCAs(r.config, r.files(), "front-proxy-ca"); err != nil {
		return err
	}
	if state.ID, err = rotationID(state.Next); err != nil {
		return err
	}
	r.state = state
	return r.applied(r.client.StoreRotation(ctx, state))
}

// storedKey returns the key that an earlier run on this host has used, "" if there is none.
func (r *CARotation) storedKey() (string, error) {
	data, err := fs.ReadFile(r.files(), strings.TrimPrefix(pki.RotationKeyPath(r.config), "/"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// rotationKey returns the key that encrypts the new CAs in the cluster. It is not derived from the old CAs:
// whoever has their keys can read Secrets.
func (r *CARotation) rotationKey() (string, error) {
	stored, err := r.storedKey()
	switch {
	case err != nil:
		return "", err
	case r.options.CertificateKey != "":
		return r.options.CertificateKey, nil
	case stored == "" && r.state != nil:
		return "", fault.New(fault.Preflight, "use the command that the first control plane printed: ./install certs rotate-ca distribute --certificate-key KEY; to see the key there: cat "+pki.RotationKeyPath(r.config),
			"this control plane needs the key with which the new CAs are encrypted")
	case stored == "":
		return cluster.NewCertificateKey(), nil
	}
	return stored, nil
}

// signer is the directory below the certificates directory with the pair of the CA with which
// the controller manager signs: it does not sign with a file of two certificates.
func (r *CARotation) signer() string {
	switch r.options.Stage {
	case RotationDistribute:
		return pki.FormerCAs
	case RotationIssue:
		return pki.NextCAs
	}
	return ""
}

// certs changes the CAs on this control plane, and lets the new CAs sign its certificates.
func (r *CARotation) certs(ctx context.Context) error {
	// The controller manager must not read a ca.crt with two certificates.
	if r.options.Stage == RotationDistribute {
		if err := r.replaceControllerManager(ctx); err != nil {
			return err
		}
	}
	state := map[string]func(*config.Config, fs.FS, time.Time) (pki.Result, error){
		RotationDistribute: pki.DistributeCAs, RotationIssue: pki.SwitchCAs, RotationFinish: pki.FinishCAs, RotationCancel: pki.CancelCAs,
	}[r.options.Stage]
	made, err := state(r.config, r.files(), time.Now())
	if err != nil {
		return err
	}
	if err := r.renew(made.Files...); err != nil {
		return err
	}
	if r.options.Stage == RotationIssue {
		return r.reissue(ctx)
	}
	return nil
}

// reissue renews the certificates on this control plane that the new CAs have not signed.
func (r *CARotation) reissue(ctx context.Context) error {
	names, err := pki.Reissuable(r.config, r.files(), time.Now())
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		var made pki.Result
		if name == "kubelet" {
			made, err = pki.ReissueKubelet(r.config, r.files(), time.Now())
		} else {
			made, err = pki.Renew(r.config, r.files(), time.Now(), name)
		}
		if err != nil {
			return err
		}
		if err := r.renew(made.Files...); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		r.console.Note("%d certificates have a new key and are signed by the new CAs", len(names))
	}
	return nil
}

// renew replaces files that may not be Airlift's: the kubelet writes its own.
func (r *CARotation) renew(files ...pki.File) (err error) {
	for _, f := range files {
		if f.Link != "" {
			err = r.host.RenewLink(f.Path, f.Link)
		} else {
			err = r.host.RenewFile(f.Path, f.Data, f.Mode)
		}
		if err != nil {
			return err
		}
		r.console.Debug(1, "wrote %s", f.Path)
		r.changed(true)
	}
	return nil
}

// replaceControllerManager makes the controller manager sign with the stage's CA. One with
// another signer of its own keeps it.
func (r *CARotation) replaceControllerManager(ctx context.Context) error {
	former, err := r.readManifest(controllerManager)
	if err != nil || former == nil {
		return err
	}
	manifest := former
	for flag, name := range map[string]string{"cluster-signing-cert-file": "ca.crt", "cluster-signing-key-file": "ca.key"} {
		manifest = r.withSigner(manifest, flag, name)
	}
	changed, err := r.pods.Replace(ctx, controllerManager, manifest, former)
	r.changed(changed)
	return err
}

// withSigner changes a flag of the controller manager that names a file of the CA.
func (r *CARotation) withSigner(manifest []byte, flag, name string) []byte {
	own := func(dir string) string { return path.Join(r.config.CertificatesDir, dir, name) }
	pattern := regexp.MustCompile(`(--` + flag + `=)([^"'\s]+)`)
	return pattern.ReplaceAllFunc(manifest, func(arg []byte) []byte {
		key, value, _ := bytes.Cut(arg, []byte("="))
		if !slices.Contains([]string{own(""), own(pki.FormerCAs), own(pki.NextCAs)}, string(value)) {
			r.console.Warn("%s signs with %s (--%s), which is not one of the rotated CAs: this flag is not changed", controllerManager, value, flag)
			return arg
		}
		return fmt.Appendf(nil, "%s=%s", key, own(r.signer()))
	})
}

// controlPlane restarts the static pods that have not read the files of this stage yet.
func (r *CARotation) controlPlane(ctx context.Context) error {
	if r.options.Stage != RotationDistribute {
		if err := r.replaceControllerManager(ctx); err != nil {
			return err
		}
	}
	written, err := r.host.Newest(r.existingOf(pki.ReadByStaticPods(r.config)...))
	if err != nil {
		return err
	}
	for _, name := range r.pods.Names() {
		restarted, err := r.pods.RestartOlder(ctx, name, written)
		if err != nil {
			return fmt.Errorf("restarting %s: %w", name, err)
		}
		r.changed(restarted)
	}
	return r.client.WaitForAPI(ctx, rotationTimeout, r.report)
}

// restartKubelet restarts a kubelet that has not read the files of this stage yet. One that gets
// its serving certificate from the cluster requests a new one.
func (r *CARotation) restartKubelet(ctx context.Context) error {
	settings, err := kubeletConfiguration(r.host)
	if err != nil {
		return err
	}
	current := pki.KubeletCertFile(r.config)
	stale, err := r.host.StartedBefore(ctx, "kubelet.service", r.existingOf(kubeletConf, settings.Authentication.X509.ClientCAFile, current)...)
	if err != nil {
		return err
	}
	serving := path.Join(path.Dir(current), "kubelet-server-current.pem")
	if stale && r.options.Stage == RotationIssue && fileExists(r.host, serving) {
		if err := r.host.Remove(serving); err != nil {
			return err
		}
		r.console.Note("the kubelet requests a new serving certificate: approve it on a control plane with kubectl certificate approve")
	}
	if stale {
		r.changed(true)
		if err := r.pods.RestartKubelet(ctx); err != nil {
			return err
		}
	}
	return r.client.WaitForNodeReady(ctx, r.node, rotationTimeout, r.report)
}

// existingOf returns the files that exist.
func (r *CARotation) existingOf(files ...string) []string {
	return slices.DeleteFunc(files, func(file string) bool { return file == "" || !fileExists(r.host, file) })
}

// clusterInfo publishes the CAs of this stage to joining nodes. It keeps what a node in a later
// stage has published.
func (r *CARotation) clusterInfo(ctx context.Context) error {
	if r.options.Stage != r.state.Stage {
		return nil
	}
	server, err := r.client.ClusterInfoServer(ctx)
	if err != nil || server == "" {
		return err
	}
	return r.applied(r.client.Apply(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": string(pki.ClusterInfoKubeconfig(server, r.bundle()))},
	}))
}

// bundle is what a node trusts after this stage.
func (r *CARotation) bundle() []byte {
	former, next := r.state.Former, r.state.Next
	switch r.options.Stage {
	case RotationDistribute:
		return slices.Concat(former, next)
	case RotationIssue:
		return slices.Concat(next, former)
	case RotationFinish:
		return next
	}
	return former
}

// addonNamespaces have the cluster's add-ons, whose pods use the API.
var addonNamespaces = []string{"kube-system", "kube-flannel"}

// restartWorkloads restarts the pods that read the CA when they start, once per stage.
func (r *CARotation) restartWorkloads(ctx context.Context) error {
	if err := r.restart(ctx, addonNamespaces...); err != nil {
		return err
	}
	if err := r.client.WaitForRollouts(ctx, r.waiting(), addonNamespaces...); err != nil {
		return err
	}
	if r.options.RestartWorkloads {
		// Only now: a node whose kube-proxy restarts still sends requests to pods that have ended.
		if err := r.restart(ctx, metav1.NamespaceAll); err != nil {
			return err
		}
		if err := r.client.WaitForRollouts(ctx, r.waiting(), metav1.NamespaceAll); err != nil && ctx.Err() == nil {
			r.console.Warn("%v", err) // a workload of the site that was not Ready before is not a reason to stop
		}
		return ctx.Err()
	}
	others, err := r.client.APIWorkloads(ctx, addonNamespaces...)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		effect := "may not trust the new CA"
		if r.options.Stage == RotationFinish {
			effect = "may trust the old CA"
		}
		r.console.Warn("pods of these workloads have a token, and %s until they are restarted (kubectl rollout restart, or --restart-workloads): %s", effect, strings.Join(others, ", "))
	}
	return nil
}

// restart restarts the workloads of these namespaces that were not restarted in this stage.
func (r *CARotation) restart(ctx context.Context, namespaces ...string) error {
	restarted, err := r.client.RestartWorkloads(ctx, r.options.Stage+" "+r.state.ID, namespaces...)
	r.changes += len(restarted)
	for _, name := range restarted {
		r.console.Debug(1, "restarting %s", name)
	}
	return err
}

// workerCerts changes the CAs on this worker. In the stage issue, the cluster signs a new
// certificate for its kubelet.
func (r *CARotation) workerCerts(ctx context.Context) error {
	settings, err := kubeletConfiguration(r.host)
	if err != nil {
		return err
	}
	made, err := pki.TrustCAs(r.files(), settings.Authentication.X509.ClientCAFile, r.bundle())
	if err != nil {
		return err
	}
	if r.options.Stage == RotationFinish {
		if signed, err := pki.KubeletSignedBy(r.files(), r.state.Next); err != nil {
			return err
		} else if !signed {
			return fault.New(fault.Failure, "run here first: ./install certs rotate-ca issue", "the new CA has not signed the kubelet's client certificate")
		}
	}
	if err := r.renew(made.Files...); err != nil || r.options.Stage != RotationIssue {
		return err
	}
	request, err := pki.RequestKubelet(r.config, r.files(), r.state.Next)
	if err != nil || request == nil {
		return err
	}
	certPEM, err := r.client.KubeletCertificate(ctx, request.CSR, r.waiting())
	if err != nil {
		return err
	}
	if signed, err := pki.SignedBy(certPEM, r.state.Next); err != nil {
		return err
	} else if !signed {
		return fault.New(fault.Failure, "run on all control planes first: ./install certs rotate-ca issue; then here again",
			"the controller manager that is the leader still signs with the old CA")
	}
	if made, err = request.Files(r.files(), time.Now(), certPEM); err != nil {
		return err
	}
	return r.renew(made.Files...)
}

// cleanup removes what the rotation needed, when all nodes have reached the last stage.
func (r *CARotation) cleanup(ctx context.Context) error {
	nodes, err := r.client.RotationNodes(ctx, r.state.ID)
	if err != nil {
		return err
	}
	if left := behind(nodes, r.options.Stage); len(left) > 0 {
		r.console.Note("these nodes have not reached this stage: %s", strings.Join(left, ", "))
		return r.removePairs()
	}
	only := strings.TrimSpace(string(r.bundle()))
	published := func(bundle string) bool { return strings.TrimSpace(bundle) == only }
	if err := r.client.WaitForPublishedCA(ctx, published, r.waiting()); err != nil {
		return err
	}
	if err := r.forgetUnused(ctx); err != nil {
		return err
	}
	if r.options.Stage == RotationFinish {
		if err := r.restartWorkloads(ctx); err != nil {
			return err
		}
	}
	if err := r.removePairs(); err != nil {
		return err
	}
	r.state = nil
	return r.client.RemoveRotation(ctx)
}

// forgetUnused removes the unused CAs from the bundles that extension API servers trust.
func (r *CARotation) forgetUnused(ctx context.Context) error {
	unused := [][]byte{r.state.Former, r.state.FormerFrontProxy}
	if r.options.Stage == RotationCancel {
		unused = [][]byte{r.state.Next, r.state.NextFrontProxy}
	}
	return r.applied(r.client.EditExtensionCAs(ctx, func(bundle []byte) ([]byte, error) { return pki.WithoutCerts(bundle, unused...) }))
}

// removePairs removes the pairs of the rotation from this host, with the keys of CAs that are no
// longer used.
func (r *CARotation) removePairs() error {
	for _, file := range pki.RotationFiles(r.config) {
		if err := r.host.Remove(file); err != nil {
			return err
		}
	}
	return r.host.RemoveTree(path.Join(r.config.CertificatesDir, pki.RotationDir))
}

// onlyPrepared reports whether this control plane has new CAs that it does not trust: a run was interrupted
// before it stored the rotation in the cluster.
func (r *CARotation) onlyPrepared() (bool, error) {
	_, next, err := pki.RotationCAs(r.config, r.files(), "ca")
	if err != nil || next == nil {
		return fileExists(r.host, path.Join(r.config.CertificatesDir, pki.RotationDir)), err
	}
	present, err := os.ReadFile(r.host.Path(path.Join(r.config.CertificatesDir, "ca.crt")))
	return err == nil && !bytes.Contains(present, bytes.TrimSpace(next)), err
}

// forgetPrepared removes the new CAs that no node trusts, first those that are stored for other control planes.
func (r *CARotation) forgetPrepared(ctx context.Context) error {
	if err := r.client.RemoveRotation(ctx); err != nil {
		return err
	}
	r.changed(true)
	return r.removePairs()
}

// rotationInProgress refuses a command that would write the static pods of a control plane while
// its CAs are rotated: the controller manager signs with another file until the end.
func rotationInProgress(h *host.Host, c *config.Config) error {
	dir := path.Join(cmp.Or(c.CertificatesDir, config.CertificatesDir), pki.RotationDir)
	if !fileExists(h, dir) {
		return nil
	}
	return fault.New(fault.Preflight, "see what to run next: ./install certs rotate-ca status; if no rotation is in progress, an interrupted start of one is left: ./install certs rotate-ca cancel", "the CAs of this control plane are being rotated: %s exists", dir)
}

// unfinishedWork refuses a command that would change the control plane while a restore or a rotation of the
// CAs is unfinished.
func unfinishedWork(h *host.Host, c *config.Config) error {
	if err := UnfinishedRestore(h); err != nil {
		return err
	}
	return rotationInProgress(h, c)
}
