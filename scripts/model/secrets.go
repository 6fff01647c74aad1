package model

import (
	"bytes"
	"context"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/nacl/secretbox"

	"airlift/installer/config"
	"airlift/installer/flow/reconfigure"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/reconfiguration"
	"airlift/installer/secrets"
	"airlift/installer/workflow"
)

// Commands that encrypt Secrets.
const (
	initEncrypted  = "init --encrypt-secrets"
	secretsEnable  = "secrets enable"
	secretsRotate  = "secrets rotate"
	secretsDisable = "secrets disable"
)

// initEncrypted makes the host the first control plane of a cluster that encrypts Secrets.
func (r *run) initEncrypted(b *payload.Bundle) (string, error) {
	cfg := &config.Config{}
	if err := secrets.Use(&cfg.Cluster); err != nil {
		return "", err
	}
	return r.initWith(b, cfg)
}

// secrets changes the keys of the API servers.
func (r *run) secrets(b *payload.Bundle, command string) (string, error) {
	out, err := r.changing(command, b.Manifest.KubernetesVersion, func(h *host.Host, console *workflow.Console) error {
		c, err := secrets.Open(r.ctx, node.NewMachine(h, console), node.AdminConf)
		if err != nil {
			return err
		}
		c.Reconfigure = func(ctx context.Context, edit func(*config.Cluster) error, f reconfiguration.File) error {
			run := reconfigure.New(b, reconfigure.Options{EditCluster: edit, Files: []reconfiguration.File{f},
				IgnorePreflightErrors: []string{"NodesReady", "ControlPlaneNodesReady", "EtcdHealth"}}, h, console)
			defer run.Close()
			return run.Run(ctx)
		}
		return secrets.Run(r.ctx, c, secrets.Goal(strings.TrimPrefix(command, "secrets ")), console)
	})
	text := out
	if err != nil {
		text += err.Error()
	}
	r.host.findLeaks(text)
	return out, err
}

// mayHaveKeys are the files of a host that may have keys of Secrets.
var mayHaveKeys = []string{"etc/kubernetes/encryption/", "var/lib/airlift/secrets-next.yaml", "var/lib/airlift/reconfigure/"}

// findLeaks records a violation if a key of Secrets is in a text, in another file of the host than mayHaveKeys, or in an object of the cluster.
func (h *Host) findLeaks(text string) {
	k, err := secrets.Parse([]byte(h.read(secrets.File)))
	if err != nil {
		return // it has none
	}
	var forms [][]byte
	for _, one := range slices.Concat(k.Active, k.Retired) {
		inFile := base64.StdEncoding.EncodeToString(one.Secret[:])
		forms = append(forms, one.Secret[:], []byte(inFile), []byte(base64.StdEncoding.EncodeToString([]byte(inFile))))
	}
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	find := func(where string, data []byte) {
		if slices.ContainsFunc(forms, func(form []byte) bool { return bytes.Contains(data, form) }) {
			h.world.violateLocked("a key of Secrets is in %s", where)
		}
	}
	find("the output", []byte(text))
	if c := h.world.api(); c != nil {
		for key, value := range c.data {
			find(key, []byte(plainText(value)))
		}
	}
	_ = filepath.WalkDir(h.Root, func(name string, d fs.DirEntry, err error) error {
		inside, _ := filepath.Rel(h.Root, name)
		if err != nil || !d.Type().IsRegular() || slices.ContainsFunc(mayHaveKeys, func(p string) bool { return strings.HasPrefix(inside, p) }) {
			return nil
		}
		if data, err := os.ReadFile(name); err == nil {
			find(inside, data)
		}
		return nil
	})
}

// keysOf are the keys with which an API server runs, nil for none.
func (s *apiServer) keysOf() *secrets.Keys {
	_, text, ok := strings.Cut(s.policy, "apiVersion: apiserver.config.k8s.io/v1\n")
	if !ok {
		return nil
	}
	k, err := secrets.Parse([]byte("apiVersion: apiserver.config.k8s.io/v1\n" + text))
	if err != nil {
		return nil // a configuration of the user
	}
	return k
}

// sealedWith has each key that an API server has used, by its name.
var sealedWith sync.Map

// seal returns a Secret as an API server stores it.
func (s *apiServer) seal(text string) string {
	if s.encrypts() {
		return encrypted + text
	}
	k := s.keysOf()
	if k.Writes() == "" {
		return text
	}
	var nonce [24]byte
	sealedWith.Store(k.Writes(), k.Active[0].Secret)
	return k.Writes() + string(secretbox.Seal(nonce[:], []byte(text), &nonce, &k.Active[0].Secret))
}

// plainText returns a stored object.
func plainText(stored string) string {
	parts := strings.SplitAfterN(stored, ":", 6) // k8s: enc: secretbox: v1: NAME: data
	if !strings.HasPrefix(stored, "k8s:enc:secretbox:") || len(parts) < 6 {
		return strings.TrimPrefix(stored, encrypted)
	}
	key, _ := sealedWith.Load(strings.Join(parts[:5], ""))
	secret := key.([32]byte)
	var nonce [24]byte
	text, ok := secretbox.Open(nil, []byte(parts[5][len(nonce):]), &nonce, &secret)
	if !ok {
		panic("a Secret of the model is damaged")
	}
	return string(text)
}

// reads reports whether an API server can read what is stored: all of them read what is not encrypted.
func (s *apiServer) reads(stored string) bool {
	if strings.HasPrefix(stored, "k8s:enc:secretbox:") {
		k := s.keysOf()
		return k != nil && slices.ContainsFunc(k.Active, func(one secrets.Key) bool { return strings.HasPrefix(stored, one.Prefix()) })
	}
	return !strings.HasPrefix(stored, encrypted) || strings.Contains(s.policy, "kind: EncryptionConfiguration")
}
