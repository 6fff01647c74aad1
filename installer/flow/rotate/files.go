package rotate

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/cluster/rotation"
	"airlift/installer/config"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/internal/fault"
)

// hostFiles changes the CAs, keys and certificates on this host.
type hostFiles struct {
	*node.Machine
	run *run
}

// nextCAs puts the old and the new CAs on this host. The first control plane creates the
// new CAs, and stores them for the others.
func (f *hostFiles) nextCAs(ctx context.Context) error {
	key, err := f.key()
	if err != nil {
		return err
	}
	received, err := rotation.NextCAs(ctx, f.run.client.API, key)
	if err != nil {
		return err
	}
	if f.run.state != nil && received == nil {
		return fault.New(fault.Failure, "the cluster does not have the new CAs").Hint("run it on the control plane where the rotation began")
	}
	made, err := pki.NewCAs(f.run.config, f.Files(), time.Now(), received)
	if err != nil {
		return err
	}
	keyFile := pki.File{Path: pki.RotationKeyPath(f.run.config), Data: []byte(key + "\n"), Mode: 0o600}
	if err := f.Write(append([]pki.File{keyFile}, made.Files...)...); err != nil {
		return err
	}
	files, err := pki.NextCAFiles(f.run.config, f.Files())
	if err != nil {
		return err
	}
	changed, err := rotation.StoreNextCAs(ctx, f.run.client, key, files)
	f.Changed(changed)
	if err != nil || f.run.state != nil {
		return err
	}
	state := &rotation.Rotation{Stage: Distribute}
	if state.Former, state.Next, err = pki.RotationCAs(f.run.config, f.Files(), "ca"); err != nil {
		return err
	}
	if state.FormerFrontProxy, state.NextFrontProxy, err = pki.RotationCAs(f.run.config, f.Files(), "front-proxy-ca"); err != nil {
		return err
	}
	if state.ID, err = rotationID(state.Next); err != nil {
		return err
	}
	f.run.state = state
	return f.Applied(rotation.Store(ctx, f.run.client, state))
}

// storedKey returns the key that an earlier run on this host has used, "" if there is none.
func (f *hostFiles) storedKey() (string, error) {
	data, err := fs.ReadFile(f.Files(), strings.TrimPrefix(pki.RotationKeyPath(f.run.config), "/"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// key returns the key that encrypts the new CAs in the cluster. It is not derived from the old CAs:
// whoever has their keys can read Secrets.
func (f *hostFiles) key() (string, error) {
	stored, err := f.storedKey()
	switch {
	case err != nil:
		return "", err
	case f.run.options.CertificateKey != "":
		return f.run.options.CertificateKey, nil
	case stored == "" && f.run.state != nil:
		return "", fault.New(fault.Preflight, "this control plane needs the key with which the new CAs are encrypted").
			Hint("use the command that the first control plane printed: ./install certs rotate-ca distribute --certificate-key KEY; to see the key there: cat " + pki.RotationKeyPath(f.run.config))
	case stored == "":
		return cluster.NewCertificateKey(), nil
	}
	return stored, nil
}

// changeControlPlane changes the CAs on this control plane, and lets the new CAs sign its certificates.
func (f *hostFiles) changeControlPlane(ctx context.Context) error {
	state := map[string]func(*config.Config, fs.FS, time.Time) (pki.Result, error){
		Distribute: pki.DistributeCAs, Issue: pki.SwitchCAs, Finish: pki.FinishCAs, Cancel: pki.CancelCAs,
	}[f.run.options.Stage]
	made, err := state(f.run.config, f.Files(), time.Now())
	if err != nil {
		return err
	}
	if err := f.renew(made.Files...); err != nil {
		return err
	}
	if f.run.options.Stage == Issue {
		return f.reissue(ctx)
	}
	return nil
}

// reissue renews the certificates on this control plane that the new CAs have not signed.
func (f *hostFiles) reissue(ctx context.Context) error {
	names, err := pki.Reissuable(f.run.config, f.Files(), time.Now())
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		var made pki.Result
		if name == "kubelet" {
			made, err = pki.ReissueKubelet(f.run.config, f.Files(), time.Now())
		} else {
			made, err = pki.Renew(f.run.config, f.Files(), time.Now(), name)
		}
		if err != nil {
			return err
		}
		if err := f.renew(made.Files...); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		f.Console.Note("%d certificates have a new key and are signed by the new CAs", len(names))
	}
	return nil
}

// changeWorker changes the CAs on this worker. In the stage issue, the cluster signs a new
// certificate for its kubelet.
func (f *hostFiles) changeWorker(ctx context.Context) error {
	settings, err := node.KubeletConfiguration(f.Host)
	if err != nil {
		return err
	}
	made, err := pki.TrustCAs(f.Files(), settings.Authentication.X509.ClientCAFile, f.run.trusted())
	if err != nil {
		return err
	}
	if f.run.options.Stage == Finish {
		if signed, err := pki.KubeletSignedBy(f.Files(), f.run.state.Next); err != nil {
			return err
		} else if !signed {
			return fault.New(fault.Failure, "the new CA has not signed the kubelet's client certificate").Hint("run here first: ./install certs rotate-ca issue")
		}
	}
	if err := f.renew(made.Files...); err != nil || f.run.options.Stage != Issue {
		return err
	}
	request, err := pki.RequestKubelet(f.run.config, f.Files(), f.run.state.Next)
	if err != nil || request == nil {
		return err
	}
	certPEM, err := f.run.client.KubeletCertificate(ctx, request.CSR, waiting(f.Machine))
	if err != nil {
		return err
	}
	if signed, err := pki.SignedBy(certPEM, f.run.state.Next); err != nil {
		return err
	} else if !signed {
		return fault.New(fault.Failure, "the controller manager that is the leader still signs with the old CA").
			Hint("run on all control planes first: ./install certs rotate-ca issue; then here again")
	}
	if made, err = request.Files(f.Files(), time.Now(), certPEM); err != nil {
		return err
	}
	return f.renew(made.Files...)
}

// renew replaces files that may not be Airlift's: the kubelet writes its own.
func (f *hostFiles) renew(files ...pki.File) (err error) {
	for _, file := range files {
		if file.Link != "" {
			err = f.Host.RenewLink(file.Path, file.Link)
		} else {
			err = f.Host.RenewFile(file.Path, file.Data, file.Mode)
		}
		if err != nil {
			return err
		}
		f.Console.Debug(1, "wrote %s", file.Path)
		f.Changed(true)
	}
	return nil
}

// removePairs removes the pairs of the rotation from this host, with the keys of CAs that are no
// longer used.
func (f *hostFiles) removePairs() error {
	for _, file := range pki.RotationFiles(f.run.config) {
		if err := f.Host.Remove(file); err != nil {
			return err
		}
	}
	return f.Host.RemoveTree(path.Join(f.run.config.CertificatesDir, pki.RotationDir))
}

// onlyPrepared reports whether this control plane has new CAs that it does not trust: a run was interrupted
// before it stored the rotation in the cluster.
func (f *hostFiles) onlyPrepared() (bool, error) {
	_, next, err := pki.RotationCAs(f.run.config, f.Files(), "ca")
	if err != nil || next == nil {
		return node.FileExists(f.Host, path.Join(f.run.config.CertificatesDir, pki.RotationDir)), err
	}
	present, err := os.ReadFile(f.Host.Path(path.Join(f.run.config.CertificatesDir, "ca.crt")))
	return err == nil && !bytes.Contains(present, bytes.TrimSpace(next)), err
}
