package filter

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/internal/wasm"
)

// An instance is the filter's state for an instance of its module.
type instance struct {
	filter *Filter
	wasm   *wasm.Instance
	output output

	create, connection, data, done, log, remove, allocate *wasm.Function

	next   uint32      // number of the next context
	of     *Connection // the client about which the module is asked, or nil
	stream *Stream     // the stream that the module rewrites, or nil
	last   bool        // a line may be logged as the last line of the stream, beyond the rate
	answer Answer
	chosen bool  // set_property has set a verdict in answer
	err    error // why the answer is invalid
}

const root = 1

// Actions of proxy-wasm.
const (
	actionContinue = 0
	actionPause    = 1
)

// A lateStart is [wasm.ErrTimeout] of an instance that did not begin in time.
type lateStart struct{ within time.Duration }

func (e lateStart) Error() string { return fmt.Sprintf("the module did not start within %v", e.within) }

func (lateStart) Unwrap() error { return wasm.ErrTimeout }

// instance makes an instance that is ready for questions, within a time.
func (f *Filter) instance(module *wasm.Module, within time.Duration) (*wasm.Instance, error) {
	s := &instance{filter: f, next: root + 1}
	s.output.log = &f.log
	began := time.Now()
	i, err := module.Instantiate(&s.output, s)
	if err == nil {
		s.wasm = i
		if err = s.begin(within - time.Since(began)); err != nil {
			i.Close()
		}
	}
	if errors.Is(err, wasm.ErrTimeout) {
		err = lateStart{within}
	}
	if err != nil {
		return nil, s.output.because(err)
	}
	s.output.begun, s.output.said = true, nil
	return i, nil
}

// begin starts the root context.
func (s *instance) begin(within time.Duration) error {
	i := s.wasm
	s.create, s.connection = i.Function("proxy_on_context_create"), i.Function("proxy_on_new_connection")
	s.data = i.Function(cmp.Or(s.filter.stream, "proxy_on_downstream_data"))
	s.done, s.log, s.remove = i.Function("proxy_on_done"), i.Function("proxy_on_log"), i.Function("proxy_on_delete")
	if s.allocate = i.Function("proxy_on_memory_allocate"); s.allocate == nil {
		s.allocate = i.Function("malloc")
	}
	i.Begin(within)
	if _, err := s.call(s.create, root, 0); err != nil {
		return err
	}
	for _, step := range []struct {
		name, buffer string
		refusal      error
	}{{"proxy_on_vm_start", "", errRefuses}, {"proxy_on_configure", s.filter.cfg.Config, ErrConfiguration}} {
		f := i.Function(step.name)
		if f == nil {
			continue
		}
		s.output.said = s.output.said[:0] // earlier output does not explain a failure of this step
		ok, err := i.Call(f, root, uint64(len(step.buffer)))
		switch {
		case err == nil && uint32(ok) == 0:
			return fmt.Errorf("%w: %s returned false", step.refusal, step.name)
		case errors.Is(err, wasm.ErrTrap), errors.Is(err, wasm.ErrExit): // for example a panic
			return fmt.Errorf("%w: %s: %w", step.refusal, step.name, err)
		case err != nil:
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return i.End()
}

// call calls a function. It does nothing if the module lacks the function.
func (s *instance) call(f *wasm.Function, params ...uint64) (uint64, error) {
	if f == nil {
		return actionContinue, nil
	}
	return s.wasm.Call(f, params...)
}

func (s *instance) decide(of *Connection) error {
	s.of, s.answer, s.chosen, s.err = of, Answer{}, false, nil
	s.wasm.Begin(s.filter.cfg.Timeout)
	err := s.ask(of)
	s.of = nil
	_ = s.wasm.End() // the answer counts even if the instance cannot be used again
	if err == nil {
		err = s.err
	}
	return err
}

func (s *instance) ask(of *Connection) error {
	id := uint64(s.next)
	if s.next++; s.next == 1<<31 {
		s.next = root + 1
	}
	if _, err := s.call(s.create, id, root); err != nil {
		return err
	}
	action, err := s.call(s.connection, id)
	if err == nil {
		err = s.judge(action)
	}
	if err == nil && !s.chosen && s.data != nil && s.filter.cfg.Preread > 0 {
		ended := uint64(0)
		if of.Ended {
			ended = 1
		}
		if action, err = s.call(s.data, id, uint64(len(of.First)), ended); err == nil {
			err = s.judge(action)
		}
	}
	if err == nil && !s.chosen && action == actionPause {
		s.answer.Verdict = More
		if s.data == nil || of.Ended || len(of.First) >= s.filter.cfg.Preread {
			err = fmt.Errorf("%w: it waits for more bytes, but there will be no more", ErrAnswer)
		}
	}
	if err != nil {
		return err
	}
	return s.endContext(id)
}

// judge rejects an unknown action.
func (s *instance) judge(action uint64) error {
	if uint32(action) > actionPause {
		return fmt.Errorf("%w: action %d", ErrAnswer, uint32(action))
	}
	return nil
}

func (s *instance) endContext(id uint64) error {
	for _, f := range []*wasm.Function{s.done, s.log, s.remove} {
		if _, err := s.call(f, id); err != nil {
			return err
		}
	}
	return nil
}
