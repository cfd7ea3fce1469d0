package syscalls

import "testing"

func TestParsePerf(t *testing.T) {
	for text, want := range map[string]int64{
		"452614,,raw_syscalls:sys_enter,167118322,100.00,,":     452614,
		"<not counted>,,raw_syscalls:sys_enter,0,100.00,,":      0,
		"0,,raw_syscalls:sys_enter,181668927,100.00,,":          0,
		"7,,raw_syscalls:sys_enter,1,100.00,3,calls per second": 7,
	} {
		if n, err := parsePerf([]string{"Events disabled", text}, everyCall); err != nil || n != want {
			t.Errorf("%q: got %d, %v, want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "1,,cycles,1,100.00,,", "<not supported>,,raw_syscalls:sys_enter,0,100.00,,"} {
		if n, err := parsePerf([]string{text}, everyCall); err == nil {
			t.Errorf("%q: got %d", text, n)
		}
	}
}

func TestParsePerfOfUserSpace(t *testing.T) {
	if n, err := parsePerf([]string{"21,,cache-misses:u,1,100.00,,"}, cacheMisses); err != nil || n != 21 {
		t.Errorf("got %d, %v", n, err)
	}
}

func TestParseStrace(t *testing.T) {
	const head = "% time     seconds  usecs/call     calls    errors syscall"
	n, err := parseStrace([]string{
		"strace: Process 7 detached", head,
		"------ ----------- ----------- --------- --------- ----------------",
		" 97.11    0.000571           2       201           read",
		"  2.89    0.000017           0        30        30 futex",
		"------ ----------- ----------- --------- --------- ----------------",
		"100.00    0.000588           2       231        30 total",
	})
	if err != nil || n != 231 {
		t.Errorf("got %d, %v", n, err)
	}
	if n, err := parseStrace([]string{head, " 97.11    0.000571           2       many           read"}); err == nil {
		t.Errorf("got %d", n)
	}
}
