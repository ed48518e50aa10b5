package objecttest

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/culvert-io/culvert/internal/object"
)

// Environment are the variables that make a Store at url the store of this process or
// of a command, whatever the user of the tests has configured.
func Environment(url string) map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
		"AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_PROFILE": "", "AWS_SESSION_TOKEN": "", "AWS_CA_BUNDLE": "", "AWS_ENDPOINT_URL_S3": "",
	}
}

// BucketAt makes s3://bucket/ that of a handler, such as a Store.
func BucketAt(t *testing.T, h http.Handler) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	for name, value := range Environment(srv.URL) {
		t.Setenv(name, value)
	}
	object.Forget()
	t.Cleanup(object.Forget)
}
