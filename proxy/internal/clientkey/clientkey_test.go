package clientkey_test

import (
	"errors"
	"testing"

	"github.com/penstock/penstock/proxy/internal/clientkey"
)

// TestParse: a key is read as it is written, and others are refused.
func TestParse(t *testing.T) {
	for _, text := range clientkey.Words() {
		k, err := clientkey.Parse(text)
		if err != nil || k.String() != text {
			t.Errorf("%s: %v, %v", text, k, err)
		}
	}
	if k, err := clientkey.Parse("tlv:224"); err != nil || k.String() != "tlv:0xe0" {
		t.Errorf("a decimal type: %v, %v", k, err)
	}
	for _, text := range []string{"", "SNI", "tlv", "tlv:", "tlv:256", "tlv:-1", "tlv:0x100", "sni "} {
		if k, err := clientkey.Parse(text); !errors.Is(err, clientkey.ErrKey) {
			t.Errorf("%q is %v, %v", text, k, err)
		}
	}
	if (clientkey.Key{}).String() != "source" {
		t.Error("the zero key is not the source")
	}
}
