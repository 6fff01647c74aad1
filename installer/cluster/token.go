package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"

	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/internal/fault"
)

const (
	PrintJoinCommand = "./install token create --print-join-command"
	NewTokenHint     = "create a new token on a control plane: " + PrintJoinCommand
)

// ErrNoToken is the beginning of the error about a token that does not exist.
var ErrNoToken = errors.New("no token")

// NewToken generates a random bootstrap token, "abcdef.0123456789abcdef".
func NewToken() (string, error) {
	token, err := bootstraputil.GenerateBootstrapToken()
	if err != nil {
		return "", fmt.Errorf("generating a token: %w", err)
	}
	return token, nil
}

// CheckToken fails if the token is malformed. The message does not repeat the
// token, because part of it may be a secret.
func CheckToken(token string) error {
	if bootstraputil.IsValidBootstrapToken(token) {
		return nil
	}
	return fault.New(fault.Usage,
		"the bootstrap token is malformed: it must be 6 and 16 lower-case letters or digits separated by a dot, such as abcdef.0123456789abcdef").
		Hint("copy the token from the join command, or create a new one on a control plane: ./install token create --print-join-command")
}

// JoinCommand is the command that joins a host to the cluster. endpoint is host:port.
func JoinCommand(endpoint, token string, caHashes ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "./install join %s --token %s", endpoint, token)
	for _, hash := range caHashes {
		b.WriteString(" --discovery-token-ca-cert-hash " + hash)
	}
	return b.String()
}

// OtherPodNetwork is the part of a join command for a cluster that has another pod
// network than the bundle's: otherwise join installs the bundle's on the node.
const OtherPodNetwork = " --cni none"

// EnsureTokens creates or updates the tokens and returns those it wrote. An
// existing token with the same secret, usages, groups and description keeps its
// expiration until it has expired.
func (c *Client) EnsureTokens(ctx context.Context, tokens []config.BootstrapToken) (changed []string, err error) {
	for _, token := range tokens {
		want, err := tokenSecret(token, time.Now())
		if err != nil {
			return changed, err
		}
		have, err := c.systemSecret(ctx, want.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return changed, fmt.Errorf("reading token %s: %w", tokenID(token.Token), err)
		}
		if err == nil && keepsExpiry(token, have, time.Now()) {
			want.Data[bootstrapapi.BootstrapTokenExpirationKey] = have.Data[bootstrapapi.BootstrapTokenExpirationKey]
		}
		did, err := c.Apply(ctx, want)
		if err != nil {
			return changed, err
		}
		changed = append(changed, did...)
	}
	return changed, nil
}

// systemSecret reads a Secret in kube-system.
func (c *Client) systemSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	return wait.Get(ctx, c.API.CoreV1().Secrets(metav1.NamespaceSystem).Get, name)
}

// keepsExpiry reports whether an existing token keeps its expiration: the wanted
// one has only a TTL, and the existing one has not expired.
func keepsExpiry(token config.BootstrapToken, have *corev1.Secret, now time.Time) bool {
	if !token.Expires.IsZero() || token.TTL == 0 {
		return false
	}
	old, err := parseToken(have)
	return err == nil && !old.Expires.IsZero() && old.Expires.After(now)
}

// CreateToken creates a token and fails if its ID exists.
func (c *Client) CreateToken(ctx context.Context, token config.BootstrapToken) error {
	secret, err := tokenSecret(token, time.Now())
	if err != nil {
		return err
	}
	_, err = c.API.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, secret, metav1.CreateOptions{DryRun: c.dryRun})
	if apierrors.IsAlreadyExists(err) {
		return fault.New(fault.Failure, "a token with ID %q already exists", tokenID(token.Token)).
			Hint("leave the token out to generate one, or delete the existing one: ./install token delete " + tokenID(token.Token))
	}
	if err != nil {
		return fmt.Errorf("creating token %s: %w", tokenID(token.Token), err)
	}
	return nil
}

// ListTokens returns the cluster's tokens, including expired ones, sorted by expiration; tokens
// that never expire come last. Malformed token Secrets are left out and named in the error, which
// is returned together with the tokens.
func (c *Client) ListTokens(ctx context.Context) ([]config.BootstrapToken, error) {
	tokens, broken, err := c.tokens(ctx)
	if err != nil {
		return nil, err
	}
	return tokens, broken
}

func (c *Client) tokens(ctx context.Context) (tokens []config.BootstrapToken, broken, err error) {
	var secrets *corev1.SecretList
	err = wait.Retry(ctx, func() (err error) {
		secrets, err = c.API.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("type", string(bootstrapapi.SecretTypeBootstrapToken)).String(),
		})
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("listing tokens: %w", err)
	}
	for i := range secrets.Items {
		token, err := parseToken(&secrets.Items[i])
		if err != nil {
			broken = errors.Join(broken, err)
			continue
		}
		tokens = append(tokens, token)
	}
	slices.SortStableFunc(tokens, func(a, b config.BootstrapToken) int {
		switch {
		case a.Expires.Equal(b.Expires):
			return strings.Compare(a.Token, b.Token)
		case a.Expires.IsZero():
			return 1
		case b.Expires.IsZero():
			return -1
		}
		return a.Expires.Compare(b.Expires)
	})
	return tokens, broken, nil
}

// DeleteToken deletes a token, given as a whole or by its ID.
func (c *Client) DeleteToken(ctx context.Context, tokenOrID string) error {
	id := tokenID(tokenOrID)
	if !bootstraputil.IsValidBootstrapTokenID(id) {
		return fault.New(fault.Usage, "%q is not a token ID: it must be 6 lower-case letters or digits", id).Hint("list the tokens: ./install token list")
	}
	err := c.API.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, bootstraputil.BootstrapTokenSecretName(id), metav1.DeleteOptions{DryRun: c.dryRun})
	if apierrors.IsNotFound(err) {
		return fault.New(fault.Failure, "%w has the ID %q", ErrNoToken, id).Hint("list the tokens: ./install token list")
	}
	if err != nil {
		return fmt.Errorf("deleting token %s: %w", id, err)
	}
	return nil
}

// FindJoinToken returns the token for joining that lives longest, if it lives
// for at least minLife, or "". A second init prints it instead of creating one.
func (c *Client) FindJoinToken(ctx context.Context, minLife time.Duration) (string, error) {
	tokens, _, err := c.tokens(ctx)
	if err != nil {
		return "", err
	}
	for _, t := range slices.Backward(tokens) {
		lives := t.Expires.IsZero() || t.Expires.After(time.Now().Add(minLife))
		if lives && slices.Contains(t.Groups, config.NodeTokenGroup) &&
			slices.Contains(t.Usages, "signing") && slices.Contains(t.Usages, "authentication") {
			return t.Token, nil
		}
	}
	return "", nil
}

// tokenID is the public part of a token.
func tokenID(token string) string {
	id, _, _ := strings.Cut(token, ".")
	return id
}

// tokenSecret is the Secret that the API server's authenticator and the
// bootstrap signer read (k8s.io/cluster-bootstrap/token/api).
func tokenSecret(token config.BootstrapToken, now time.Time) (*corev1.Secret, error) {
	if err := CheckToken(token.Token); err != nil {
		return nil, err
	}
	if err := bootstraputil.ValidateUsages(token.Usages); err != nil {
		return nil, fault.Wrap(err, fault.Usage, "usages are: signing, authentication")
	}
	for _, group := range token.Groups {
		if err := bootstraputil.ValidateBootstrapGroupName(group); err != nil {
			return nil, fault.Wrap(err, fault.Usage, "")
		}
	}
	id, secret, _ := strings.Cut(token.Token, ".")
	data := map[string][]byte{
		bootstrapapi.BootstrapTokenIDKey:     []byte(id),
		bootstrapapi.BootstrapTokenSecretKey: []byte(secret),
	}
	if token.Description != "" {
		data[bootstrapapi.BootstrapTokenDescriptionKey] = []byte(token.Description)
	}
	expires := token.Expires
	if expires.IsZero() && token.TTL > 0 {
		expires = now.Add(token.TTL)
	}
	if !expires.IsZero() {
		data[bootstrapapi.BootstrapTokenExpirationKey] = []byte(expires.UTC().Format(time.RFC3339))
	}
	for _, usage := range token.Usages {
		data[bootstrapapi.BootstrapTokenUsagePrefix+usage] = []byte("true")
	}
	if len(token.Groups) > 0 {
		data[bootstrapapi.BootstrapTokenExtraGroupsKey] = []byte(strings.Join(token.Groups, ","))
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: bootstraputil.BootstrapTokenSecretName(id), Namespace: metav1.NamespaceSystem},
		Type:       bootstrapapi.SecretTypeBootstrapToken,
		Data:       data,
	}, nil
}

// parseToken is the inverse of tokenSecret.
func parseToken(s *corev1.Secret) (config.BootstrapToken, error) {
	get := func(key string) string { return string(s.Data[key]) }
	token := config.BootstrapToken{
		Token:       get(bootstrapapi.BootstrapTokenIDKey) + "." + get(bootstrapapi.BootstrapTokenSecretKey),
		Description: get(bootstrapapi.BootstrapTokenDescriptionKey),
	}
	if !bootstraputil.IsValidBootstrapToken(token.Token) || s.Name != bootstraputil.BootstrapTokenSecretName(tokenID(token.Token)) {
		return token, fmt.Errorf("reading token Secret %s: its name, ID or secret is malformed", s.Name)
	}
	if at := get(bootstrapapi.BootstrapTokenExpirationKey); at != "" {
		var err error
		if token.Expires, err = time.Parse(time.RFC3339, at); err != nil {
			return token, fmt.Errorf("reading token Secret %s: its expiration: %w", s.Name, err)
		}
	}
	for _, usage := range bootstrapapi.KnownTokenUsages {
		if get(bootstrapapi.BootstrapTokenUsagePrefix+usage) == "true" {
			token.Usages = append(token.Usages, usage)
		}
	}
	slices.Sort(token.Usages)
	if groups := get(bootstrapapi.BootstrapTokenExtraGroupsKey); groups != "" {
		token.Groups = strings.Split(groups, ",")
	}
	return token, nil
}
