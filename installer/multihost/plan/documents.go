package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"airlift/installer/config"
	"airlift/installer/multihost/spec"
	"airlift/internal/documents"
)

// api is the version of the documents that the user did not give. All versions of the installer read it.
const api = "kubeadm.k8s.io/v1beta4"

// kubeadm has the user's documents by kind, decoded.
type kubeadm map[string]map[string]any

// readKubeadm decodes documents that package spec checked.
func readKubeadm(stream []byte) (kubeadm, error) {
	list, errs := documents.Read(stream)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	k := kubeadm{}
	for _, d := range list {
		var value map[string]any
		decoder := json.NewDecoder(bytes.NewReader(d.JSON))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			return nil, fmt.Errorf("kubeadm's documents, line %d: %w", d.Line, err)
		}
		if kind, _ := value["kind"].(string); kind != "" {
			k[kind] = value
		}
	}
	return k, nil
}

// document returns the user's document of a kind. It adds one if there is none.
func (k kubeadm) document(kind string) map[string]any {
	if k[kind] == nil {
		k[kind] = map[string]any{"apiVersion": api, "kind": kind}
	}
	return k[kind]
}

// within returns the mapping at a path of fields. It creates what is missing.
func within(d map[string]any, path ...string) map[string]any {
	for _, name := range path {
		next, ok := d[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			d[name] = next
		}
		d = next
	}
	return d
}

// stream encodes documents. JSON is YAML.
func stream(list ...map[string]any) (io.Reader, error) {
	var b bytes.Buffer
	for i, d := range list {
		if i > 0 {
			b.WriteString("---\n")
		}
		data, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return nil, err
		}
		b.Write(append(data, '\n'))
	}
	return bytes.NewReader(b.Bytes()), nil
}

// of returns the user's documents of some kinds.
func (k kubeadm) of(kinds ...string) (list []map[string]any) {
	for _, kind := range kinds {
		if k[kind] != nil {
			list = append(list, k[kind])
		}
	}
	return list
}

// A Token is a bootstrap token that init creates.
type Token struct {
	Text    string        // "": init chooses one
	TTL     time.Duration // until init ends, if nobody uses it
	Expires time.Time     // for joining hosts, instead of TTL
	Groups  []string      // of who has it; none: kubeadm's
	About   string
	// CertificateKey encrypts the certificates that init uploads for other control planes; "" if it uploads none.
	CertificateKey string
}

// InitDocuments are the documents for init on a host. If the user's documents have tokens, init creates these, and t only if hosts join
// with it.
func InitDocuments(c *spec.Cluster, h spec.Host, t Token) (io.Reader, error) {
	k, err := readKubeadm(c.Kubeadm)
	if err != nil {
		return nil, err
	}
	init, cluster := k.document("InitConfiguration"), k.document("ClusterConfiguration")
	register(init, h)
	if len(h.NodeIP) > 0 {
		within(init, "localAPIEndpoint")["advertiseAddress"] = h.NodeIP[0].String()
	}
	users, _ := init["bootstrapTokens"].([]any)
	if len(users) == 0 || !t.Expires.IsZero() {
		init["bootstrapTokens"] = append(users, t.document())
	}
	if t.CertificateKey != "" {
		init["certificateKey"] = t.CertificateKey
	}
	cluster["clusterName"] = c.Name
	if own := c.Endpoint.Address; own != "" {
		cluster["controlPlaneEndpoint"] = own
	}
	return stream(append([]map[string]any{init}, k.of(config.ClusterKinds...)...)...)
}

// document is the token in InitConfiguration.
func (t Token) document() map[string]any {
	d := map[string]any{}
	if t.Text != "" {
		d["token"] = t.Text
	}
	if t.Expires.IsZero() {
		d["ttl"] = t.TTL.String()
	} else {
		d["expires"] = t.Expires.UTC().Format(time.RFC3339)
	}
	if len(t.Groups) > 0 {
		d["groups"], d["usages"] = t.Groups, []string{"signing", "authentication"}
	}
	if t.About != "" {
		d["description"] = t.About
	}
	return d
}

// ClusterDocuments are the user's documents that a running cluster can change. The endpoint has its own command.
func ClusterDocuments(c *spec.Cluster) (io.Reader, error) {
	k, err := readKubeadm(c.Kubeadm)
	if err != nil {
		return nil, err
	}
	delete(k["ClusterConfiguration"], "controlPlaneEndpoint")
	return stream(k.of(config.ClusterKinds...)...)
}

// Credentials are what a host joins with. They are secret.
type Credentials struct {
	Token             string   `json:"token"`
	CACertHashes      []string `json:"caCertHashes"` // empty: only the token proves which cluster it is
	CertificateKey    string   `json:"certificateKey,omitempty"`
	APIServerEndpoint string   `json:"apiServerEndpoint"`
	APIServers        []string `json:"apiServers,omitempty"`
}

// JoinDocument is the document for join on a host. Without credentials, it is for preflight checks.
func JoinDocument(cluster *spec.Cluster, h spec.Host, c *Credentials) (io.Reader, error) {
	k, err := readKubeadm(cluster.Kubeadm)
	if err != nil {
		return nil, err
	}
	join := k.document("JoinConfiguration")
	register(join, h)
	discovery := within(join, "discovery")
	delete(discovery, "file")
	token := map[string]any{"token": placeholder, "unsafeSkipCAVerification": true}
	if c != nil {
		token = map[string]any{"token": c.Token, "apiServerEndpoint": c.APIServerEndpoint}
		discovery["tlsBootstrapToken"] = c.Token
		if len(c.CACertHashes) > 0 {
			token["caCertHashes"] = c.CACertHashes
		} else {
			token["unsafeSkipCAVerification"] = true
		}
	}
	discovery["bootstrapToken"] = token
	delete(join, "controlPlane")
	if h.Role == spec.ControlPlane {
		controlPlane(k, join, h, c)
	}
	return stream(join)
}

// placeholder is a token that no cluster has.
const placeholder = "000000.0000000000000000"

// controlPlane sets what only a joining control plane has. The user's port applies, an address only to one host.
func controlPlane(k kubeadm, join map[string]any, h spec.Host, c *Credentials) {
	own := within(join, "controlPlane")
	if c != nil {
		own["certificateKey"] = c.CertificateKey
	}
	endpoint := within(k.document("InitConfiguration"), "localAPIEndpoint")
	if port := endpoint["bindPort"]; port != nil {
		within(own, "localAPIEndpoint")["bindPort"] = port
	}
	if len(h.NodeIP) > 0 {
		within(own, "localAPIEndpoint")["advertiseAddress"] = h.NodeIP[0].String()
	}
}

// register sets how the node registers itself.
func register(d map[string]any, h spec.Host) {
	node := within(d, "nodeRegistration")
	node["name"] = h.Name
	if h.Taints != nil {
		taints := []any{}
		for _, t := range h.Taints {
			taints = append(taints, taint(t))
		}
		node["taints"] = taints
	}
	if h.Patches != "" {
		within(d, "patches")["directory"] = PatchesDir
	}
}

// taint decodes key=value:Effect or key:Effect.
func taint(text string) map[string]any {
	key, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(key, "=")
	t := map[string]any{"key": key, "effect": effect}
	if value != "" {
		t["value"] = value
	}
	return t
}

// UpgradeDocument is the user's document for upgrades, with the patches of the host; nil if there is none.
func UpgradeDocument(c *spec.Cluster, h spec.Host) (io.Reader, error) {
	k, err := readKubeadm(c.Kubeadm)
	if err != nil || k["UpgradeConfiguration"] == nil {
		return nil, err
	}
	d := k["UpgradeConfiguration"]
	if h.Patches != "" {
		for _, verb := range []string{"apply", "node"} {
			within(d, verb, "patches")["directory"] = PatchesDir
		}
	}
	return stream(d)
}
