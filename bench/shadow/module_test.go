package shadow

import (
	"os"
	"testing"
)

// TestModule: the file that a rewrite names is a module, and every length in it is of the bytes that follow.
func TestModule(t *testing.T) {
	dir := t.TempDir()
	if _, err := writeModule(dir); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(dir + "/" + moduleName)
	if err != nil || string(b[:4]) != "\x00asm" {
		t.Fatalf("%q, %v", b, err)
	}
	for b = b[8:]; len(b) > 0; {
		n := int(b[1]&0x7f) | int(b[2])<<7
		if n > len(b)-3 {
			t.Fatalf("section %d has %d bytes, of %d", b[0], n, len(b)-3)
		}
		if b[0] == 10 && b[4] > 0x7f {
			t.Errorf("a function of %d bytes", b[4])
		}
		b = b[3+n:]
	}
}
