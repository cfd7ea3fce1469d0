package contestant

import (
	"reflect"
	"testing"
)

func TestParseSpliced(t *testing.T) {
	for text, want := range map[string]int64{
		"Name: HAProxy\nTotalBytesOut: 9\nTotalSplicedBytesOut: 7\n": 7,
		"TotalSplicdedBytesOut: 5\nBytesOutRate: 1\n":                5,
	} {
		if n, err := parseSpliced(text); err != nil || n != want {
			t.Errorf("%q: got %d, %v, want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"", "TotalBytesOut: 9\n", "TotalSplicedBytesOut: many\n"} {
		if n, err := parseSpliced(text); err == nil {
			t.Errorf("%q: got %d", text, n)
		}
	}
}

func TestParseStat(t *testing.T) {
	const head = "# pxname,svname,scur,bin,bout,\n"
	a, err := parseStat(head + "other,FRONTEND,1,2,3,\nbench,BACKEND,4,5,6,\nbench,FRONTEND,7,8,9,\n\n")
	if err != nil || !reflect.DeepEqual(*a, Account{Active: 7, ClientToEndpoint: 8, EndpointToClient: 9}) {
		t.Errorf("got %+v, %v", a, err)
	}
	for _, text := range []string{"", head, head + "bench,FRONTEND,x,8,9,\n", head + "bench,FRONTEND\n"} {
		if a, err := parseStat(text); err == nil {
			t.Errorf("%q: got %+v", text, a)
		}
	}
}
