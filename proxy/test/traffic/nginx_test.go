package traffic

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/software"
)

// headerBytes limits the bytes that HTTP adds to a file.
const headerBytes = 8 << 10

// testNginx fetches a large file with curl and puts it back, by every engine.
func testNginx(t *testing.T) {
	curl := software.Need(t, "curl", "curl")
	addr, dir := startNginx(t)
	files := filepath.Join(dir, "files")

	for engine, size := range map[string]int64{"auto": 256 << 20, "splice": 64 << 20, "copy": 64 << 20} {
		t.Run(engine, func(t *testing.T) {
			want := writeRandom(t, filepath.Join(files, engine), size)
			p := startProxy(t, addr, "--engine", engine)
			url := "http://" + p.addr + "/" + engine
			if got := fetch(t, curl, url); got != want {
				t.Errorf("fetched a file with SHA-256 %s, want %s", got, want)
			}
			software.Run(t, curl, "--silent", "--show-error", "--fail", "--noproxy", "*", "--header", "Expect:",
				"--upload-file", filepath.Join(files, engine), url+"-put")
			if got := hashFile(t, filepath.Join(files, engine+"-put")); got != want {
				t.Errorf("put a file with SHA-256 %s, want %s", got, want)
			}
			s := p.stop(t)
			s.clean(t)
			checkBulk(t, "client to endpoint", engine, s.Bytes.ClientToEndpoint, size)
			checkBulk(t, "endpoint to client", engine, s.Bytes.EndpointToClient, size)
		})
	}
}

// checkBulk requires that one file and its headers were moved as the engine says.
func checkBulk(t *testing.T, direction, engine string, f flow, size int64) {
	t.Helper()
	if f.All() < size || f.All() > size+2*headerBytes {
		t.Errorf("%s: %d bytes, want those of the file and its headers", direction, f.All())
	}
	switch engine {
	case "auto":
		if f.Spliced < size/2 { // the size of reads depends on the machine
			t.Errorf("%s: %d of %d bytes spliced, want most", direction, f.Spliced, f.All())
		}
	case "splice":
		if f.Copied != 0 {
			t.Errorf("%s: %d bytes copied by the splice engine", direction, f.Copied)
		}
	case "copy":
		if f.Spliced != 0 {
			t.Errorf("%s: %d bytes spliced by the copy engine", direction, f.Spliced)
		}
	}
}

// startNginx serves the directory files below dir, and lets clients put files
// there.
func startNginx(t *testing.T) (addr, dir string) {
	t.Helper()
	nginx := software.Need(t, "nginx", "nginx")
	dir = software.Dir(t, nil)
	must(t, os.Mkdir(filepath.Join(dir, "files"), 0o755))
	addr, _, _ = software.Addr(t)
	worker := "" // the workers of an ordinary user run as that user
	if os.Getuid() == 0 {
		worker = "user root;"
	}
	config := fmt.Sprintf(`
daemon off; %s worker_processes 2; pid nginx.pid; error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	client_max_body_size 0;
	sendfile on;
	server { listen %s; root files; location / { dav_methods PUT; } }
}
`, worker, addr)
	must(t, os.WriteFile(filepath.Join(dir, "nginx.conf"), []byte(config), 0o644))
	software.Service{
		Command: []string{nginx, "-p", dir, "-c", "nginx.conf", "-e", "stderr"},
		Dir:     dir,
		Addr:    addr,
		Stop:    syscall.SIGTERM,
	}.Start(t)
	return addr, dir
}

// writeRandom writes a file that no layer can compress or guess, and returns
// its SHA-256.
func writeRandom(t *testing.T, path string, size int64) string {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, sum), rand.NewChaCha8([32]byte{}), size)
	must(t, err)
	return digest(sum)
}

func hashFile(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	must(t, err)
	return digest(sum)
}

func digest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// fetch returns the SHA-256 of the bytes that curl gets from url.
func fetch(t *testing.T, curl, url string, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), condition.Patience)
	defer cancel()
	sum := sha256.New()
	cmd := exec.CommandContext(ctx, curl, append(flags, "--silent", "--show-error", "--fail", "--noproxy", "*", url)...)
	cmd.Stdout, cmd.Stderr = sum, t.Output()
	if err := cmd.Run(); err != nil {
		t.Fatalf("curl %s: %v", url, err)
	}
	return digest(sum)
}
