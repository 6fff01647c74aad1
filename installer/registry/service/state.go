package service

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"airlift/installer/config"
	"airlift/installer/daemon"
	"airlift/installer/registry"
)

// State is what the service of a host does.
type State struct {
	Listen  string              `json:"listen"`  // "host:port"
	Bundles []config.KeptBundle `json:"bundles"` // that it serves, in order of precedence
	// Problems are the bundles that are damaged or could not be copied: the errors by ID.
	Problems map[string]string `json:"problems,omitempty"`
	// Copy is the bundle that is being copied from another control plane, nil if there is none.
	Copy *Copy `json:"copy,omitempty"`
	// Peers are the other control planes, "host:port".
	Peers       []string `json:"peers,omitempty"`
	Connections int      `json:"connections"`
	Requests    int      `json:"requests"`  // that are being served
	BytesSent   int64    `json:"bytesSent"` // since the start
	Refused     int64    `json:"refused"`   // requests without permission, since the start
	API         APIState `json:"api"`
}

// APIState is whether the API answers.
type APIState struct {
	Answered time.Time `json:"answered,omitzero"` // the last time
	Nodes    int       `json:"nodes"`             // that may read
	// Failed is the last error after Answered, "" if there is none.
	Failed string `json:"failed,omitempty"`
}

// A contact records whether the API answers.
type contact struct {
	mu    sync.Mutex
	state APIState
}

func (c *contact) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = APIState{Answered: time.Now()}
}

func (c *contact) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Failed = err.Error()
}

// state returns the state of the service. It waits only for locks that are held for moments.
func (s *service) state() State {
	state := State{
		Listen: s.connections.Addr().String(), Bundles: s.catalog.bundles(), Problems: s.catalog.problems(),
		Connections: s.connections.count(), Requests: len(s.requests), BytesSent: s.sent.Load(), Refused: s.refused.Load(),
	}
	s.copies.mu.Lock()
	state.Copy = s.copies.running
	for _, p := range s.copies.servers {
		state.Peers = append(state.Peers, p.String())
	}
	maps.Copy(state.Problems, s.copies.failed)
	s.copies.mu.Unlock()
	s.contact.mu.Lock()
	state.API = s.contact.state
	s.contact.mu.Unlock()
	s.access.mu.Lock()
	state.API.Nodes = len(s.access.names)
	s.access.mu.Unlock()
	return state
}

// local answers requests of this host: GET /status, and POST /refresh after a bundle was placed in the store.
func (s *service) local() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.state())
	})
	mux.HandleFunc("POST /refresh", func(http.ResponseWriter, *http.Request) { s.catalog.refresh() })
	return mux
}

// Query returns the state of this host's service, nil if none runs.
func Query(ctx context.Context) (*State, error) {
	state, err := daemon.Query[State](ctx, registry.Socket)
	if err != nil {
		return nil, fmt.Errorf("asking the registry's service of this host: %w", err)
	}
	return state, nil
}

// Refresh lets this host's service serve what was placed in the store, if it runs. Without it, that takes some seconds.
func Refresh(ctx context.Context) error {
	resp, err := daemon.Request(ctx, registry.Socket, http.MethodPost, "/refresh")
	if err != nil {
		return fmt.Errorf("asking the registry's service of this host: %w", err)
	}
	if resp == nil {
		return nil
	}
	return resp.Body.Close()
}

// Serves reports whether the state has a bundle with an ID that is intact.
func (s State) Serves(id string) bool {
	_, damaged := s.Problems[id]
	return !damaged && slices.ContainsFunc(s.Bundles, func(b config.KeptBundle) bool { return b.ID == id })
}
