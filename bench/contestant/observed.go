package contestant

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/penstock/penstock/bench/observed"
)

// PartObserved is the name of the part (see Program) that runs package observed.
// Its arguments are the form, the upstream address and the most sessions.
const PartObserved = "observed"

// Observed returns a kind that can be asked for its Pauses, for so many sessions
// at most. env is added to its environment, as "GOGC=50".
func Observed(form observed.Form, about string, most int, env ...string) *Kind {
	return &Kind{string(form), about, observedStarter{form: form, most: most, env: env}}
}

// observedStarter starts package observed.
type observedStarter struct {
	own
	form observed.Form
	most int
	env  []string
}

func (o observedStarter) start(ctx context.Context, name string, s *Setting) (*Contestant, error) {
	spec := s.Program.Spec(name, s.Program.Part, PartObserved, string(o.form), s.Upstream, strconv.Itoa(o.most))
	if spec.Env == nil {
		spec.Env = os.Environ()
	}
	spec.Env = append(spec.Env[:len(spec.Env):len(spec.Env)], o.env...)
	c, err := startPart(ctx, name, s.Group, spec)
	if err != nil {
		return nil, err
	}
	c.observe = c.answer
	if o.form == observed.Penstock {
		c.ask = c.observedAccount
	}
	return c, nil
}

// answer asks one question.
func (c *Contestant) answer(ctx context.Context, q observed.Question) (*observed.Answer, error) {
	if err := c.child.Send(q); err != nil {
		return nil, err
	}
	line, err := c.child.Stdout(ctx)
	if err != nil {
		return nil, err
	}
	a := new(observed.Answer)
	if err := json.Unmarshal([]byte(line), a); err != nil {
		return nil, fmt.Errorf("%q: %w", line, err)
	}
	return a, nil
}

// observedAccount asks for Penstock's account.
func (c *Contestant) observedAccount(ctx context.Context) (*Account, error) {
	a, err := c.answer(ctx, observed.Question{})
	if err != nil {
		return nil, err
	}
	return accountOf(a.Summary), nil
}
