package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// trueFor and falseFor are how long an answer of the API is used. A token that was deleted works this long.
	trueFor, falseFor = 10 * time.Second, 2 * time.Second
	// askTimeout bounds a question, with the wait for its turn. askers is how many are asked at once.
	askTimeout, askers = 5 * time.Second, 16
	// maxAsked is how many answers one client may wait for, and maxAskedOf those of a network of IPv6: invented tokens must not take the
	// turns of all, and those of one address not the turns of its network.
	maxAsked, maxAskedOf = 4, 12
	// maxAnswers limits the memory. It is more than requests that can wait for an answer.
	maxAnswers = 4 * maxRequests
)

// An answers keeps answers of the API for a short time, and asks each question once at a time.
type answers struct {
	turns chan struct{}

	mu    sync.Mutex
	known map[string]*answer
	asked map[string]int // by client and by network: the questions that have no answer yet
}

// An answer is valid once done is closed.
type answer struct {
	done  chan struct{}
	yes   bool
	err   error
	until time.Time // zero while it is asked for
}

func newAnswers() *answers {
	return &answers{turns: make(chan struct{}, askers), known: map[string]*answer{}, asked: map[string]int{}}
}

// An asker is who asks: an address with its network, or a node.
type asker struct{ name, network string }

// count adds n to the questions of a client. Its network is its address, of IPv4.
func (a *answers) count(who asker, n int) {
	for _, name := range []string{who.name, "network " + who.network} {
		if a.asked[name] += n; a.asked[name] == 0 {
			delete(a.asked, name)
		}
	}
}

// get returns the answer to a question of a client, and asks if there is none.
func (a *answers) get(ctx context.Context, client asker, question string, ask func(context.Context) (bool, error)) (bool, error) {
	x, isNew := a.find(client, question)
	if x == nil {
		return false, errBusy
	}
	if isNew {
		// Others wait for the answer even if this request ends.
		go a.ask(context.WithoutCancel(ctx), client, question, x, ask)
	}
	select {
	case <-x.done:
		return x.yes, x.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// find returns the answer that is valid or will be, nil if the client waits for too many others.
func (a *answers) find(client asker, question string) (x *answer, isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if x = a.known[question]; x != nil && (x.until.IsZero() || now.Before(x.until)) {
		return x, false
	}
	if a.asked[client.name] >= maxAsked || client.network != "" && a.asked["network "+client.network] >= maxAskedOf {
		return nil, false
	}
	a.count(client, 1)
	if len(a.known) >= maxAnswers {
		a.forget(now)
	}
	x = &answer{done: make(chan struct{})}
	a.known[question] = x
	return x, true
}

// forget removes the answers that expired, or else any one.
func (a *answers) forget(now time.Time) {
	var last string
	for question, x := range a.known {
		switch {
		case x.until.IsZero():
		case now.After(x.until):
			delete(a.known, question)
		default:
			last = question
		}
	}
	if len(a.known) >= maxAnswers {
		delete(a.known, last)
	}
}

// ask asks the API, and makes the answer valid. An error is not kept.
func (a *answers) ask(ctx context.Context, client asker, question string, x *answer, ask func(context.Context) (bool, error)) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	yes, err := a.inTurn(ctx, ask)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.count(client, -1)
	x.yes, x.err, x.until = yes, err, time.Now().Add(falseFor)
	if yes {
		x.until = time.Now().Add(trueFor)
	}
	if err != nil && a.known[question] == x {
		delete(a.known, question)
	}
	close(x.done)
}

var errBusy = errors.New("too many credentials are checked at once")

func (a *answers) inTurn(ctx context.Context, ask func(context.Context) (bool, error)) (bool, error) {
	select {
	case a.turns <- struct{}{}:
		defer func() { <-a.turns }()
		return ask(ctx)
	case <-ctx.Done():
		return false, fmt.Errorf("%w: %w", errBusy, ctx.Err())
	}
}
