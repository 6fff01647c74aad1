package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/bundle"
	"airlift/bundle/signature"
	"airlift/images/release"
	"airlift/internal/fault"
	"airlift/internal/interrupt"
	"airlift/internal/progress"
)

// A requiredKey checks the signature and the version of the bundle file before a command runs. This
// flag finds a wrong, replaced or unsigned file. It does not protect from a forged file, whose
// installer may skip the check. Only another program, minisign or 'bundle verify --key', proves who
// signed a file.
type requiredKey struct{ key, signature, version string }

func (r *requiredKey) bind(f *pflag.FlagSet) {
	f.StringVar(&r.key, "require-key", "", "fail if this file is not signed by the public key in this `FILE`; check a file that you do not trust with minisign before you run it")
	f.StringVar(&r.signature, "signature", "", "with --require-key: the `FILE` with the signature (default: this file's path with .minisig)")
	f.StringVar(&r.version, "require-version", "", "fail if this file has an older Kubernetes version than `VERSION`: an old file stays signed")
}

func (r *requiredKey) check(cmd *cobra.Command) error {
	if r.key == "" && r.signature != "" {
		return fault.New(fault.Usage, "--signature needs --require-key").Hint("add --require-key FILE")
	}
	if r.key == "" && r.version == "" {
		return nil
	}
	f, err := openOwnFile()
	if err != nil {
		return err
	}
	defer f.Close()
	if r.key != "" {
		if err := r.checkSignature(cmd, f); err != nil {
			return err
		}
	}
	return r.checkVersion(f)
}

func (r *requiredKey) checkSignature(cmd *cobra.Command, f *bundle.File) error {
	key, err := signature.ReadPublicKey(r.key)
	if err != nil {
		return err
	}
	display := progress.New(cmd.ErrOrStderr())
	defer display.Close()
	item := display.Item("signature of "+f.Path(), f.Size())
	path := cmp.Or(r.signature, signature.Path(f.Path()))
	comment, err := signature.Verify(cmd.Context(), f.Reader(), f.Path(), path, key, item.Add)
	if err == nil && own.unpacked {
		err = isRunning(cmd, f)
	}
	if err != nil {
		item.Failed()
		return err
	}
	item.Done("signed by key " + key.ID() + ": " + comment)
	return nil
}

// isRunning returns an error unless this process is the installer of the file: the launcher read
// the file before its signature was checked.
func isRunning(cmd *cobra.Command, f *bundle.File) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("reading this process's executable: %w", err)
	}
	defer self.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, interrupt.Reader(cmd.Context(), self)); err != nil {
		return fmt.Errorf("reading this process's executable: %w", err)
	}
	if fmt.Sprintf("%x", sum.Sum(nil)) != f.Installer().SHA256 {
		return fault.New(fault.Bundle, "%s was changed after it was started: this process is not its installer", f.Path()).Hint("copy the file to a disk that only root can write to, and run it there")
	}
	return nil
}

func (r *requiredKey) checkVersion(f *bundle.File) error {
	if r.version == "" {
		return nil
	}
	m, err := f.Manifest()
	if err != nil {
		return err
	}
	return release.AtLeast(f.Path(), m.KubernetesVersion, r.version)
}
