package run

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"airlift/installer/multihost/plan"
	"airlift/installer/multihost/spec"
)

const (
	// tokenTTL is how long a token is valid. A run that needs it for longer gets another one.
	tokenTTL = 30 * time.Minute
	// tokenRest is how long a token must be valid yet for a join that begins.
	tokenRest = 10 * time.Minute
	// initTokenTTL is how long the token of init is valid if the run ends before it deletes it. Nobody uses it.
	initTokenTTL = time.Minute
	// cleanUpTimeout is for what is done after an interruption.
	cleanUpTimeout = 20 * time.Second
)

// credentials are what "cluster host credentials" prints.
type credentials = plan.Credentials

// errNoCredentials does not quote what cannot be decoded: it may have a part of a secret.
var errNoCredentials = errors.New("the control plane printed no credentials for joining hosts")

// A keyring has the secrets with which hosts join. They are only in memory.
type keyring struct {
	mu    sync.Mutex
	all   []credentials
	until time.Time // of the last one, on this machine's clock
}

// credentials returns what a host joins with. The leader creates it when it is needed first.
func (s *Site) joinCredentials(ctx context.Context, p *plan.Plan) (*credentials, error) {
	k := &s.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) > 0 && time.Until(k.until) > tokenRest {
		return &k.all[len(k.all)-1], nil
	}
	leader, err := s.leader(p)
	if err != nil {
		return nil, err
	}
	args := []string{leader.installer, "cluster", "host", "credentials", "--ttl", tokenTTL.String()}
	if s.joinsControlPlane(p) {
		args = append(args, "--control-plane")
	}
	until := time.Now().Add(tokenTTL)
	out, err := leader.answer(ctx, workTime, nil, args...)
	if err != nil {
		return nil, err
	}
	var c credentials
	if err := json.Unmarshal(out, &c); err != nil {
		return nil, errNoCredentials
	}
	k.all, k.until = append(k.all, c), until
	return &k.all[len(k.all)-1], nil
}

// initToken returns a token for init, which creates one in any case. No host joins with it.
func (k *keyring) initToken() string {
	text := strings.ToLower(rand.Text()) // a to z and 2 to 7, which tokens may have
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = append(k.all, credentials{Token: text[:6] + "." + text[6:22]})
	k.until = time.Time{}
	return k.all[len(k.all)-1].Token
}

// joinsControlPlane reports whether a control plane joins in the plan.
func (s *Site) joinsControlPlane(p *plan.Plan) bool {
	return slices.ContainsFunc(actions(p), func(a plan.Action) bool {
		h := s.host(a.Host)
		return a.Verb == plan.Join && h != nil && h.Role == spec.ControlPlane
	})
}

// forget deletes the tokens. They expire by themselves if the leader does not answer any more.
func (s *Site) forget(ctx context.Context, p *plan.Plan) {
	leader, err := s.leader(p)
	if err != nil || len(s.keys.all) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	for _, c := range s.keys.all {
		data, err := json.Marshal(c)
		if err == nil {
			_, err = leader.answer(ctx, answerTime, bytes.NewReader(data), leader.installer, "cluster", "host", "credentials", "--delete")
		}
		if err != nil {
			s.Display.Printf("warning: a bootstrap token was not deleted on %s; it expires within %s\n", leader.Name, tokenTTL)
		}
	}
	s.keys.all = nil
}
