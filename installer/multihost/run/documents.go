package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"airlift/installer/config"
	"airlift/installer/multihost/plan"
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

// initDocuments are the documents for init on a host. Init creates token, which is empty for preflight checks, unless the
// user's documents have tokens.
func (h *Host) initDocuments(token string) (io.Reader, error) {
	k, err := readKubeadm(h.site.Cluster.Kubeadm)
	if err != nil {
		return nil, err
	}
	init, cluster := k.document("InitConfiguration"), k.document("ClusterConfiguration")
	h.register(init)
	if len(h.NodeIP) > 0 {
		within(init, "localAPIEndpoint")["advertiseAddress"] = h.NodeIP[0].String()
	}
	if init["bootstrapTokens"] == nil {
		only := map[string]any{"ttl": initTokenTTL.String()}
		if token != "" {
			only["token"] = token
		}
		init["bootstrapTokens"] = []any{only}
	}
	cluster["clusterName"] = h.site.Cluster.Name
	if own := h.site.Cluster.Endpoint.Address; own != "" {
		cluster["controlPlaneEndpoint"] = own
	}
	return stream(append([]map[string]any{init}, k.of(config.ClusterKinds...)...)...)
}

// clusterDocuments are the user's documents that a running cluster can change. The endpoint has its own command.
func (s *Site) clusterDocuments() (io.Reader, error) {
	k, err := readKubeadm(s.Cluster.Kubeadm)
	if err != nil {
		return nil, err
	}
	delete(k["ClusterConfiguration"], "controlPlaneEndpoint")
	return stream(k.of(config.ClusterKinds...)...)
}

// joinDocument is the document for join on a host. Without credentials, it is for preflight checks.
func (h *Host) joinDocument(c *credentials) (io.Reader, error) {
	k, err := readKubeadm(h.site.Cluster.Kubeadm)
	if err != nil {
		return nil, err
	}
	join := k.document("JoinConfiguration")
	h.register(join)
	discovery := within(join, "discovery")
	delete(discovery, "file")
	token := map[string]any{"token": placeholder, "unsafeSkipCAVerification": true}
	if c != nil {
		token = map[string]any{"token": c.Token, "apiServerEndpoint": c.APIServerEndpoint, "caCertHashes": c.CACertHashes}
		discovery["tlsBootstrapToken"] = c.Token
	}
	discovery["bootstrapToken"] = token
	delete(join, "controlPlane")
	if h.Role == spec.ControlPlane {
		h.controlPlane(k, join, c)
	}
	return stream(join)
}

// placeholder is a token that no cluster has.
const placeholder = "000000.0000000000000000"

// controlPlane sets what only a joining control plane has. The user's port applies, an address only to one host.
func (h *Host) controlPlane(k kubeadm, join map[string]any, c *credentials) {
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
func (h *Host) register(d map[string]any) {
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
		within(d, "patches")["directory"] = plan.PatchesDir
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

// upgradeDocument is the user's document for upgrades, with the patches of the host; nil if there is none.
func (h *Host) upgradeDocument() (io.Reader, error) {
	k, err := readKubeadm(h.site.Cluster.Kubeadm)
	if err != nil || k["UpgradeConfiguration"] == nil {
		return nil, err
	}
	d := k["UpgradeConfiguration"]
	if h.Patches != "" {
		for _, verb := range []string{"apply", "node"} {
			within(d, verb, "patches")["directory"] = plan.PatchesDir
		}
	}
	return stream(d)
}
