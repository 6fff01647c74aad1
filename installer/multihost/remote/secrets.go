package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A secret is asked for once. The first host that uses it tries it alone: a wrong password that all hosts try would lock
// the account.
type secret struct {
	mu       sync.Mutex
	text     string
	asked    bool
	accepted bool
	wrong    error
}

// errWrong is in the error of a host that refused a secret.
var errWrong = errors.New("wrong password")

// errNobody is the error without a terminal.
var errNobody = errors.New("there is no terminal, so nobody can be asked")

// useSecret asks for a secret if it was not asked for yet, and tries it. Key names it.
func (d *Dialer) useSecret(ctx context.Context, key, prompt string, try func(text string) error) error {
	s := shared(&d.secrets, key, &secret{})
	s.mu.Lock()
	if s.accepted {
		s.mu.Unlock()
		return try(s.text)
	}
	defer s.mu.Unlock()
	if s.wrong != nil {
		return fmt.Errorf("not tried, because it was refused before: %w", s.wrong)
	}
	if !s.asked {
		text, err := d.askSecret(ctx, prompt)
		if err != nil {
			return err
		}
		s.text, s.asked = text, true
	}
	err := try(s.text)
	switch {
	case errors.Is(err, errWrong):
		s.wrong = err
	case err == nil:
		s.accepted = true
	}
	return err
}

func (d *Dialer) askSecret(ctx context.Context, prompt string) (string, error) {
	if d.options.Password == nil {
		return "", errNobody
	}
	d.asking.Lock()
	defer d.asking.Unlock()
	return d.options.Password(ctx, prompt)
}
