package cluster

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// NewCertificateKey generates a random key for UploadCerts: AES-256, in hexadecimal.
func NewCertificateKey() string {
	key := make([]byte, 32)
	rand.Read(key) // never fails (crypto/rand)
	return hex.EncodeToString(key)
}

// UploadCerts stores the certificates that another control plane needs,
// encrypted with key, in the Secret kubeadm-certs. The Secret's owner is a
// bootstrap token without permissions: when the token expires after two hours,
// the Secret is deleted with it.
//
// Nothing is written if the Secret already contains the same files, encrypted
// with the same key, and has at least half of its lifetime left.
func (c *Client) UploadCerts(ctx context.Context, files fs.FS, cfg *config.Config, key string) (changed bool, err error) {
	aead, err := NewCipher(key)
	if err != nil {
		return false, err
	}
	plain := map[string][]byte{}
	for name, path := range sharedCerts(cfg) {
		data, err := fs.ReadFile(files, strings.TrimPrefix(path, "/"))
		switch {
		case errors.Is(err, fs.ErrNotExist) && (name == "ca.key" || name == "front-proxy-ca.key"):
			// As in kubeadm: without this key, a joining control plane
			// cannot create its own certificates.
			return false, fault.New(fault.Failure, "uploading certificates: %s does not exist: with an external CA, a joining control plane could not create its certificates", path).
				Hint("run without --upload-certs, and copy the certificates to each control plane yourself")
		case errors.Is(err, fs.ErrNotExist):
			// Files of an external etcd, or the key of an external CA. As in
			// kubeadm, an empty value means: skip this file on join.
		case err != nil:
			return false, fmt.Errorf("uploading certificates: %w", err)
		}
		plain[name] = data
	}
	uploaded, err := c.certsUploaded(ctx, aead, plain)
	if err != nil || uploaded {
		return false, err
	}

	owner, err := c.certsOwner(ctx)
	if err != nil {
		return false, err
	}
	data := map[string][]byte{}
	for name, value := range plain {
		data[name] = Seal(aead, value)
	}
	_, err = c.Apply(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: certsSecret, Namespace: metav1.NamespaceSystem, OwnerReferences: owner},
		Data:       data,
	})
	return err == nil, err
}

// DownloadCerts fetches and decrypts what UploadCerts or kubeadm stored. It
// returns file contents by path, without files that were missing at the upload.
func (c *Client) DownloadCerts(ctx context.Context, cfg *config.Config, key string) (map[string][]byte, error) {
	aead, err := NewCipher(key)
	if err != nil {
		return nil, err
	}
	secret, err := c.systemSecret(ctx, certsSecret)
	if apierrors.IsNotFound(err) {
		return nil, fault.New(fault.Failure,
			"downloading certificates: the cluster has no Secret %s/%s", metav1.NamespaceSystem, certsSecret).
			Hint("uploaded certificates expire after two hours; upload them again on a control plane: ./install init phase upload-certs --upload-certs")
	}
	if err != nil {
		return nil, fmt.Errorf("downloading certificates: %w", err)
	}
	files := map[string][]byte{}
	for name, path := range sharedCerts(cfg) {
		sealed, ok := secret.Data[name]
		if !ok {
			return nil, fmt.Errorf("downloading certificates: Secret %s/%s has no %q", metav1.NamespaceSystem, certsSecret, name)
		}
		if len(sealed) == 0 {
			continue
		}
		plain, err := Unseal(aead, sealed)
		if err != nil {
			return nil, fault.New(fault.Failure, "decrypting %q of Secret %s/%s: %w", name, metav1.NamespaceSystem, certsSecret, err).
				Hint("use the --certificate-key that the last upload printed")
		}
		files[path] = plain
	}
	return files, nil
}

// DeleteCerts deletes what UploadCerts stored with this key, and reports whether it was there. What was uploaded with
// another key stays.
func (c *Client) DeleteCerts(ctx context.Context, key string) (deleted bool, err error) {
	aead, err := NewCipher(key)
	if err != nil {
		return false, err
	}
	secret, err := c.systemSecret(ctx, certsSecret)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting the uploaded certificates: %w", err)
	}
	if _, err := Unseal(aead, secret.Data["ca.crt"]); err != nil {
		return false, nil
	}
	secrets := c.API.CoreV1().Secrets(metav1.NamespaceSystem)
	err = secrets.Delete(ctx, certsSecret, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}})
	for _, owner := range secret.OwnerReferences {
		if err == nil {
			err = secrets.Delete(ctx, owner.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &owner.UID}})
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("deleting the uploaded certificates: %w", err)
	}
	return true, nil
}

// sharedCerts are the files that all control planes share, by their
// key in the Secret.
func sharedCerts(cfg *config.Config) map[string]string {
	names := []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.pub", "sa.key"}
	if cfg.Etcd.External == nil {
		names = append(names, "etcd/ca.crt", "etcd/ca.key")
	}
	paths := map[string]string{}
	for _, name := range names {
		// A Secret's keys have no slashes.
		paths[strings.ReplaceAll(name, "/", "-")] = filepath.Join(cfg.CertificatesDir, name)
	}
	if e := cfg.Etcd.External; e != nil {
		paths["external-etcd-ca.crt"] = e.CAFile
		paths["external-etcd.crt"] = e.CertFile
		paths["external-etcd.key"] = e.KeyFile
	}
	return paths
}

// certsUploaded reports whether the Secret already contains the files and has at
// least half of its lifetime left.
func (c *Client) certsUploaded(ctx context.Context, aead cipher.AEAD, plain map[string][]byte) (bool, error) {
	secret, err := c.systemSecret(ctx, certsSecret)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for uploaded certificates: %w", err)
	}
	if len(secret.Data) != len(plain) || len(secret.OwnerReferences) != 1 {
		return false, nil
	}
	for name, want := range plain {
		sealed, ok := secret.Data[name]
		if !ok || (len(sealed) == 0) != (len(want) == 0) {
			return false, nil
		}
		if len(sealed) == 0 {
			continue
		}
		if have, err := Unseal(aead, sealed); err != nil || !bytes.Equal(have, want) {
			return false, nil
		}
	}
	owner, err := c.systemSecret(ctx, secret.OwnerReferences[0].Name)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the owner of the uploaded certificates: %w", err)
	}
	token, err := parseToken(owner)
	return err == nil && token.Expires.After(time.Now().Add(certsTokenTTL/2)), nil
}

// certsOwner creates the token that the Secret expires with.
func (c *Client) certsOwner(ctx context.Context) ([]metav1.OwnerReference, error) {
	token, err := NewToken()
	if err != nil {
		return nil, err
	}
	err = c.CreateToken(ctx, config.BootstrapToken{
		Token: token, TTL: certsTokenTTL,
		Description: "Proxy for managing TTL for the kubeadm-certs secret", // as in kubeadm: users find it in "token list"
	})
	if err != nil {
		return nil, err
	}
	secret, err := c.systemSecret(ctx, bootstraputil.BootstrapTokenSecretName(tokenID(token)))
	if err != nil {
		return nil, fmt.Errorf("reading the token that was just created: %w", err)
	}
	return []metav1.OwnerReference{*metav1.NewControllerRef(secret, corev1.SchemeGroupVersion.WithKind("Secret"))}, nil
}

// NewCipher is AES-GCM with kubeadm's nonce and tag sizes, which are Go's. It draws the nonce itself and prepends it, as FIPS 140-3
// requires.
func NewCipher(key string) (cipher.AEAD, error) {
	raw, err := hex.DecodeString(key)
	if err != nil || len(raw) != 32 {
		return nil, fault.New(fault.Usage, "the certificate key is malformed: it must be 64 hexadecimal digits").Hint("copy the key from the output of init --upload-certs, or of certs rotate-ca distribute")
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal encrypts data. Empty data stays empty but not nil,
// so that the Secret contains the key.
func Seal(aead cipher.AEAD, data []byte) []byte {
	if len(data) == 0 {
		return []byte{}
	}
	return aead.Seal(nil, nil, data, nil)
}

func Unseal(aead cipher.AEAD, sealed []byte) ([]byte, error) { return aead.Open(nil, nil, sealed, nil) }
