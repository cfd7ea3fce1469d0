package wasm_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/privilege"
	. "github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
	"github.com/penstock/penstock/proxy/internal/wasm"
)

// TestInterpretedWhereNoCodeMayBeMade: where memory may not be made executable modules are interpreted.
func TestInterpretedWhereNoCodeMayBeMade(t *testing.T) {
	if !privilege.NoNewCode(t) {
		return
	}
	m := &Module{Pages: 1}
	m.Func("run", "", i32, 0, Const(42))
	c := compile(t, m, nil, wasm.Bounds{})
	if c.Engine() != wasm.Interpreter {
		t.Errorf("it runs by the %s", c.Engine())
	}
	i, err := c.Instantiate(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	i.Begin(10 * time.Second)
	if v, err := i.Call(i.Function("run")); v != 42 || err != nil {
		t.Error(v, err)
	}
}
