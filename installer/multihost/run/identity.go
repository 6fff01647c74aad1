package run

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"

	"airlift/installer/pki"
	"airlift/internal/fault"
)

// identityScript prints what shows whose node a host is, without a secret: the CA and the client certificate of its kubelet, and
// the ledger, which has the node that an interrupted reset was removing. After the reset, only the name of the machine and what a
// driver brought are left. It needs no more than the shell and sed.
const identityScript = `test -d ` + driverDir + ` && echo "brought $(uname -n)" || echo brought
cd /etc/kubernetes 2>/dev/null
value() { sed -n "s/^ *$1: *//p" kubelet.conf 2>/dev/null | tr -d "\"'" | head -n 1; }
pem() { sed -n '/-----BEGIN CERTIFICATE-----/,/-----END CERTIFICATE-----/p' "$1" 2>/dev/null; }
echo "ca $(value certificate-authority-data)"
pem "$(value certificate-authority)"
echo "cert $(value client-certificate-data)"
pem "$(value client-certificate)"
echo ledger
cat ` + stateDir + `/ledger.json 2>/dev/null
true`

// A proof is what a host has to show before anything is sent to it: its address was reported by a kubelet.
type proof struct {
	name string
	cas  []string // hashes of the CAs of the cluster
}

// An identity is what identityScript printed of a host.
type identity struct {
	// machine is the name of a machine to which a driver brought something.
	machine string
	node    string
	cas     []string
	// was is the node that a reset was removing.
	was struct {
		Node string   `json:"node"`
		CAs  []string `json:"cas"`
	}
}

// identify returns an error unless the host shows that it is the one of a Node.
func (h *Host) identify(ctx context.Context) error {
	out, err := h.Output(ctx, "/bin/sh", "-c", identityScript)
	if err != nil {
		return err
	}
	if why := h.proof.refutedBy(parseIdentity(string(out))); why != "" {
		return fault.New(fault.Preflight, "nothing was sent to %s, the address that the Node %s reports: %s", h.SSH.Address, h.Name, why).
			Hint("compare the address: kubectl get node " + h.Name + " -o wide; then run on the host itself: ./install reset")
	}
	return nil
}

// refutedBy returns why a host is not the one that is meant, "" if it is.
func (p *proof) refutedBy(is identity) string {
	own := func(cas []string) bool {
		return slices.ContainsFunc(cas, func(ca string) bool { return slices.Contains(p.cas, ca) })
	}
	switch {
	case is.node == p.name && own(is.cas), is.node == "" && is.was.Node == p.name && own(is.was.CAs),
		is.node == "" && is.was.Node == "" && strings.EqualFold(is.machine, p.name):
		return ""
	case is.node == "":
		return "that host is no node"
	case !own(is.cas):
		return "that host is a node of another cluster"
	}
	return "that host is the node " + is.node
}

func parseIdentity(out string) (is identity) {
	brought, out, _ := strings.Cut(out, "\n")
	is.machine = strings.TrimSpace(strings.TrimPrefix(brought, "brought"))
	files, ledger, _ := strings.Cut(out, "\nledger\n")
	ca, cert, _ := strings.Cut(files, "\ncert ")
	is.cas, _ = pki.CAHashes(certificatesIn(strings.TrimPrefix(ca, "ca ")))
	if block, _ := pem.Decode(certificatesIn(cert)); block != nil {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			is.node, _ = strings.CutPrefix(c.Subject.CommonName, "system:node:")
		}
	}
	var document struct {
		Entries []struct {
			Of json.RawMessage `json:"of"`
		} `json:"entries"`
	}
	_ = json.Unmarshal([]byte(ledger), &document)
	for _, e := range document.Entries {
		if e.Of != nil {
			_ = json.Unmarshal(e.Of, &is.was)
		}
	}
	return is
}

// certificatesIn returns certificates in PEM: the first line is the value of a field in base64, or the certificates follow it.
func certificatesIn(text string) []byte {
	value, rest, _ := strings.Cut(text, "\n")
	if data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(value)); err == nil && len(data) > 0 {
		return data
	}
	return []byte(rest)
}

// leave takes back what was brought to a host that is not used, and ends the connection.
func (h *Host) leave(ctx context.Context) {
	c := h.connection()
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	switch {
	case h.installer == "": // nothing was brought
	case h.bare:
		_ = h.clear(ctx)
	case h.installer != installed:
		_ = h.dropStaged(ctx)
	}
	_ = c.Close()
}

// dropStaged removes the staged file.
func (h *Host) dropStaged(ctx context.Context) error {
	return h.shell(ctx, "rm -f "+h.installer+"; rmdir "+driverDir+" 2>/dev/null || true")
}

// proofOf returns what a host of the cluster of a control plane has to show.
func proofOf(name string, of *Host) *proof {
	p := &proof{name: name}
	if n := of.Facts.Node; n != nil {
		p.cas = append(slices.Clone(n.CASHA256s), n.CASHA256)
	}
	return p
}
