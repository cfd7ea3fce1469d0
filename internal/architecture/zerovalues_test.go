package architecture

import (
	"context"
	"errors"
	"reflect"
	"syscall"
	"testing"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/evring"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/pool"
	"github.com/penstock/penstock/vecio"
)

// TestZeroValues: the methods of zero values return, with zero arguments, and leave the descriptors 0, 1 and 2 alone. None
// of them panics, but for those that say so.
func TestZeroValues(t *testing.T) {
	panics := map[string]string{
		"*arena.Arena.Local":      "there is no Local to return",
		"*arena.Ring.Peek":        "there is no slot",
		"*arena.Ring.Space":       "there is no slot",
		"*arena.Ring.Read":        "there is no slot",
		"*arena.Ring.Write":       "there is no slot",
		"*pool.Pool[int].MustGet": "it panics with the error of Get",
		"*loop.Loop.Connect":      "a Connector that is nil has no method to be called",
		"*loop.Conn.Go":           "only handlers have connections",
		"*loop.Conn.Detach":       "only handlers have connections",
		"*loop.Conn.AsyncWrite":   "only handlers have connections",
		"*loop.Conn.Loop":         "only handlers have connections",
		"*loop.Conn.More":         "only handlers have connections",
	}
	listed := files(t)
	for _, v := range []any{
		new(pool.Pool[int]), new(pool.Config[int]), new(pool.Bytes), new(pool.BytesConfig), new(pool.Stats), new(pool.BytesStats),
		new(pipe.Pipe), new(pipe.Pool), new(pipe.Config), new(pipe.Stats),
		new(arena.Arena), new(arena.Local), new(arena.Ring), new(arena.Config), new(arena.Handle), new(arena.Pages), new(arena.Purpose), new(arena.Stats),
		new(evring.Ring), new(evring.Config),
		new(vecio.Writer), new(vecio.Config), new(vecio.Policy), new(vecio.Path), new(vecio.ReleaseFunc), new(vecio.Stats), new(vecio.WriteError), new(vecio.ZeroCopyState),
		new(loop.Loop), new(loop.Group), new(loop.Server), new(loop.Conn), new(loop.Listener), new(loop.Dial), new(loop.Timer), new(loop.ID), new(loop.Config), new(loop.Stats),
	} {
		for name, err := range callAll(v) {
			if _, ok := panics[name]; err != nil && !ok {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if now := files(t); now != listed {
		t.Errorf("the descriptors 0 to 2 were %v and are %v", listed, now)
	}
}

// files are the files behind the descriptors 0 to 2.
func files(t *testing.T) (inodes [3]uint64) {
	for fd := range inodes {
		var s syscall.Stat_t
		if err := syscall.Fstat(fd, &s); err != nil {
			t.Fatal(fd, err)
		}
		inodes[fd] = s.Ino
	}
	return inodes
}

// callAll calls each method of a zero value on a value of its own, and returns the panics.
func callAll(v any) map[string]error {
	out := map[string]error{}
	of := reflect.TypeOf(v)
	for i := range of.NumMethod() {
		m := of.Method(i)
		zero := reflect.New(of.Elem())
		name := of.String() + "." + m.Name
		out[name] = call(zero.Method(i))
	}
	return out
}

func call(f reflect.Value) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New("panic")
			if e, ok := v.(error); ok {
				err = e
			}
		}
	}()
	var args []reflect.Value
	for i := range f.Type().NumIn() {
		in := f.Type().In(i)
		switch {
		case f.Type().IsVariadic() && i == f.Type().NumIn()-1:
			continue
		case in == reflect.TypeFor[context.Context]():
			args = append(args, reflect.ValueOf(context.Background()))
		case in.Kind() == reflect.Pointer:
			args = append(args, reflect.New(in.Elem()))
		default:
			args = append(args, reflect.Zero(in))
		}
	}
	f.Call(args)
	return nil
}
