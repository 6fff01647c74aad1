package facts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// A Gate is what a batch of a roll has to pass: the health of its hosts, and the soak and the checks of their groups. It is
// recorded in the cluster before the batch changes a host, and removed when it has passed. Until then, no roll changes another
// host, from whichever machine.
type Gate struct {
	// Stage is the name of the stage in the plan, Verb one of its actions, and To their version, or "".
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	To    string `json:"to,omitempty"`
	// Hosts are the hosts of the batch, and Groups their groups: a host may be taken out of cluster.yaml later.
	Hosts  []string `json:"hosts"`
	Groups []string `json:"groups"`
	// Soak and Checks are what the rules of the groups were. The commands of the checks are only in cluster.yaml: the driver runs
	// nothing that comes from the cluster.
	Soak   string   `json:"soak,omitempty"`
	Checks []string `json:"checks,omitempty"` // groups that had one
	// By and Since are the driver that changed the hosts, and the time of its clock.
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	// Broken are the pods of the site that were not ready before the roll: how many, by the name of their workload. nil: not read
	// yet.
	Broken map[string]int `json:"broken"`
}

// gateFormat is the format of a Gate in the cluster. An installer with another one refuses it.
const gateFormat = 1

// An encodedGate has the format first.
type encodedGate struct {
	Format int `json:"format"`
	*Gate
}

// Encode returns the gate as it is stored in the cluster.
func (g *Gate) Encode() (string, error) {
	text, err := json.MarshalIndent(encodedGate{gateFormat, g}, "", "  ")
	return string(text), err
}

// DecodeGate reads what Encode returned. It fails if anything in it is not understood: a gate must not open by mistake.
func DecodeGate(text string) (*Gate, error) {
	var first struct{ Format int }
	if err := json.Unmarshal([]byte(text), &first); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if first.Format != gateFormat {
		return nil, fmt.Errorf("it has the format %d, and this file reads the format %d", first.Format, gateFormat)
	}
	g := encodedGate{Gate: &Gate{}}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&g); err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	if len(g.Hosts) == 0 {
		return nil, fmt.Errorf("it is damaged: it has no hosts")
	}
	return g.Gate, nil
}

// Is reports whether two gates are of the same batch; nil is no gate.
func (g *Gate) Is(other *Gate) bool {
	if g == nil || other == nil {
		return g == other
	}
	return g.Since.Equal(other.Since) && g.By == other.By && g.Stage == other.Stage && fmt.Sprint(g.Hosts) == fmt.Sprint(other.Hosts)
}

// Has reports whether hosts are of the batch.
func (g *Gate) Has(hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(name string) bool { return !slices.Contains(g.Hosts, name) })
}
