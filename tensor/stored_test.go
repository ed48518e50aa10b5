package tensor

import (
	"strings"
	"testing"
)

// Errors name a URL without what may be secret in it.
func TestSecretsOfFormatErrors(t *testing.T) {
	const url = "https://user:secret@host/m.safetensors?sig=secret"
	for _, err := range []error{&FormatError{File: url}, &ChecksumError{File: url}, noManifest(url)} {
		if s := err.Error(); strings.Contains(s, "secret") || !strings.Contains(s, "https://host/m.safetensors?...") {
			t.Errorf("%T: %s", err, s)
		}
	}
}
