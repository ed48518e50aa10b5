package s3

import (
	"bytes"
	"context"
	"crypto/sha1" // names a cache file of the SDK
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	. "github.com/culvert-io/culvert/internal/object/objecttest"
)

// awsServices answers as the services that give credentials do: instances and containers,
// single sign-on, roles.
func awsServices(w http.ResponseWriter, r *http.Request) {
	const until = "2999-01-01T00:00:00Z"
	_ = r.ParseForm()
	role := func(action, name string) {
		fmt.Fprintf(w, `<%[1]sResponse><%[1]sResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>s</SecretAccessKey>`+
			`<SessionToken>t</SessionToken><Expiration>%s</Expiration></Credentials></%[1]sResult></%[1]sResponse>`, action, name, until)
	}
	switch {
	case r.URL.Path == "/latest/api/token":
		w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "60")
		fmt.Fprint(w, "token")
	case strings.HasSuffix(r.URL.Path, "/iam/security-credentials/"), strings.HasSuffix(r.URL.Path, "/iam/security-credentials-extended/"):
		fmt.Fprint(w, "role")
	case strings.HasSuffix(r.URL.Path, "/role"):
		fmt.Fprintf(w, `{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"INSTANCE","SecretAccessKey":"s","Token":"t","Expiration":%q}`, until)
	case strings.HasSuffix(r.URL.Path, "/placement/region"):
		fmt.Fprint(w, "eu-south-2")
	case r.URL.Path == "/container":
		fmt.Fprintf(w, `{"AccessKeyId":"CONTAINER","SecretAccessKey":"s","Token":"t","Expiration":%q}`, until)
	case r.URL.Path == "/federation/credentials":
		fmt.Fprintf(w, `{"roleCredentials":{"accessKeyId":"SSO","secretAccessKey":"s","sessionToken":"t","expiration":%d}}`, time.Now().Add(time.Hour).UnixMilli())
	case r.Form.Get("Action") == "AssumeRoleWithWebIdentity" && r.Form.Get("WebIdentityToken") == "jwt":
		role("AssumeRoleWithWebIdentity", "WEB")
	case r.Form.Get("Action") == "AssumeRole":
		role("AssumeRole", "ROLE")
	default:
		http.Error(w, r.URL.Path, http.StatusNotFound)
	}
}

// noAWS removes what the user of the tests has set, and returns an empty home directory.
// The SDK has looked for ~/.aws before, so its files are named.
func noAWS(t *testing.T) string {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(home, ".aws", "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(home, ".aws", "credentials"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if err := os.MkdirAll(filepath.Join(home, ".aws", "sso", "cache"), 0o700); err != nil {
		t.Fatal(err)
	}
	return home
}

// writeHome writes a file below the home directory.
func writeHome(t *testing.T, home, name, text string) string {
	t.Helper()
	p := filepath.Join(home, name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// Credentials are found wherever the tools of AWS find them.
func TestCredentials(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(awsServices))
	t.Cleanup(srv.Close)
	const start = "https://example.awsapps.com/start"
	cached := sha1.Sum([]byte(start))
	for _, c := range []struct {
		name   string
		config string // of ~/.aws/config
		vars   map[string]string
		want   string
	}{
		{"variables", "", map[string]string{"AWS_ACCESS_KEY_ID": "VARIABLE", "AWS_SECRET_ACCESS_KEY": "s"}, "VARIABLE"},
		{"variables before a profile", "", map[string]string{"AWS_ACCESS_KEY_ID": "VARIABLE", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "x"}, "VARIABLE"},
		{"the default profile", "", nil, "DEFAULT"},
		{"a profile", "", map[string]string{"AWS_PROFILE": "other"}, "OTHER"},
		{"other files", "", map[string]string{"AWS_SHARED_CREDENTIALS_FILE": "elsewhere"}, "ELSEWHERE"},
		{"a program", "[profile p]\ncredential_process = /bin/echo '{\"Version\":1,\"AccessKeyId\":\"PROGRAM\",\"SecretAccessKey\":\"s\"}'\n", map[string]string{"AWS_PROFILE": "p"}, "PROGRAM"},
		{"single sign-on", "[profile p]\nsso_start_url = " + start + "\nsso_region = us-east-1\nsso_account_id = 1\nsso_role_name = r\n", map[string]string{"AWS_PROFILE": "p", "AWS_ENDPOINT_URL_SSO": srv.URL}, "SSO"},
		{"a role", "[profile p]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = other\nregion = us-east-1\n", map[string]string{"AWS_PROFILE": "p", "AWS_ENDPOINT_URL_STS": srv.URL}, "ROLE"},
		{"web identity", "", map[string]string{"AWS_WEB_IDENTITY_TOKEN_FILE": "token", "AWS_ROLE_ARN": "arn:aws:iam::1:role/r", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL_STS": srv.URL, "AWS_SHARED_CREDENTIALS_FILE": "none"}, "WEB"},
		{"a container", "", map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": srv.URL + "/container", "AWS_SHARED_CREDENTIALS_FILE": "none"}, "CONTAINER"},
		{"an instance", "", map[string]string{"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": srv.URL, "AWS_SHARED_CREDENTIALS_FILE": "none"}, "INSTANCE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := noAWS(t)
			writeHome(t, home, ".aws/config", c.config)
			writeHome(t, home, ".aws/credentials", "[default]\naws_access_key_id = DEFAULT\naws_secret_access_key = s\n[other]\naws_access_key_id = OTHER\naws_secret_access_key = s\n")
			writeHome(t, home, "elsewhere", "[default]\naws_access_key_id = ELSEWHERE\naws_secret_access_key = s\n")
			writeHome(t, home, "token", "jwt")
			writeHome(t, home, ".aws/sso/cache/"+hex.EncodeToString(cached[:])+".json", `{"accessToken":"a","expiresAt":"2999-01-01T00:00:00Z"}`)
			for name, value := range c.vars {
				if strings.HasSuffix(name, "_FILE") {
					value = filepath.Join(home, value)
				}
				t.Setenv(name, value)
			}
			set, err := fromEnvironment(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := set.credentials.Retrieve(t.Context()); err != nil || got.AccessKeyID != c.want {
				t.Errorf("%s, %v; want %s", got.AccessKeyID, err, c.want)
			}
			http.DefaultClient.CloseIdleConnections()
			srv.CloseClientConnections()
		})
	}
}

// Endpoints and regions are those that the clients of the SDK would use.
func TestEndpoints(t *testing.T) {
	const profiles = "[profile all]\nregion = eu-west-3\nendpoint_url = http://all\n" +
		"[profile s3]\nservices = s\nendpoint_url = http://all\n[services s]\ns3 =\n  endpoint_url = http://s3/\n" +
		"[profile fips]\nuse_fips_endpoint = true\nregion = us-gov-west-1\n"
	for _, c := range []struct{ vars, want string }{
		{"", "https://s3.us-east-1.amazonaws.com"},
		{"AWS_REGION=eu-west-1", "https://s3.eu-west-1.amazonaws.com"},
		{"AWS_DEFAULT_REGION=eu-west-2", "https://s3.eu-west-2.amazonaws.com"},
		{"AWS_REGION=cn-north-1", "https://s3.cn-north-1.amazonaws.com.cn"},
		{"AWS_REGION=eu-west-1 AWS_USE_DUALSTACK_ENDPOINT=true", "https://s3.dualstack.eu-west-1.amazonaws.com"},
		{"AWS_PROFILE=fips", "https://s3-fips.us-gov-west-1.amazonaws.com"},
		{"AWS_PROFILE=fips AWS_USE_FIPS_ENDPOINT=false", "https://s3.us-gov-west-1.amazonaws.com"},
		{"AWS_PROFILE=all", "http://all"},
		{"AWS_PROFILE=s3", "http://s3"},
		{"AWS_PROFILE=s3 AWS_ENDPOINT_URL=http://variable", "http://variable"},
		{"AWS_PROFILE=s3 AWS_ENDPOINT_URL=http://variable AWS_ENDPOINT_URL_S3=http://mine", "http://mine"},
		{"AWS_PROFILE=all AWS_ENDPOINT_URL_S3=http://mine AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true", "https://s3.eu-west-3.amazonaws.com"},
	} {
		t.Run(c.vars, func(t *testing.T) {
			writeHome(t, noAWS(t), ".aws/config", profiles)
			for _, v := range strings.Fields(c.vars) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			set, err := fromEnvironment(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := (&bucket{set: set}).endpoint(set.region); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// A profile can have the certificates to trust.
func TestCABundleOfAProfile(t *testing.T) {
	store := NewStore(map[string][]byte{"a": []byte("x")})
	srv := httptest.NewTLSServer(store)
	t.Cleanup(srv.Close)
	home := noAWS(t)
	file := writeHome(t, home, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
	writeHome(t, home, ".aws/config", "[default]\nca_bundle = "+file+"\nendpoint_url = "+srv.URL+"\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = s\n")
	set, err := fromEnvironment(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBucket("bucket", set, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.http.CloseIdleConnections)
	if info := open(t, b, "a").Info(); info.Size != 1 {
		t.Errorf("%+v", info)
	}
}

// Credentials that expire during a transfer are looked for again; without others, the
// error says so at once.
func TestExpiredDuringARead(t *testing.T) {
	data := Bytes(300_000, 1)
	store := NewStore(map[string][]byte{"a": data})
	b := serve(t, store, "bucket", credentials("AKIDEXAMPLE", "good"))
	o := open(t, b, "a")
	b.credentials = credentials("AKIDEXAMPLE", "expired")
	found := "expired"
	b.set.reload = func(context.Context) (aws.CredentialsProvider, error) { return credentials("AKIDEXAMPLE", found), nil }
	got := make([]byte, len(data))
	if _, err := o.ReadAt(got, 0); err == nil || !strings.Contains(err.Error(), "session token has expired") || strings.Contains(err.Error(), "attempts") {
		t.Errorf("no others: %v", err)
	}
	found = "new"
	if _, err := o.ReadAt(got, 0); err != nil || !bytes.Equal(got, data) {
		t.Errorf("others: %v", err)
	}
}

// A host whose clock is wrong signs by the clock of the store.
func TestClock(t *testing.T) {
	store := NewStore(map[string][]byte{"a": []byte("x")})
	ahead := time.Now().Add(time.Hour).UTC()
	b := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		w.Header().Set("Date", ahead.Format(http.TimeFormat))
		if err != nil || ahead.Sub(signed).Abs() > 15*time.Minute {
			answers(http.StatusForbidden, "RequestTimeTooSkewed").ServeHTTP(w, r)
			return
		}
		store.ServeHTTP(w, r)
	}))
	if info := open(t, b, "a").Info(); info.Size != 1 {
		t.Errorf("%+v", info)
	}
}

// Requests that were sent before the clock of the store was known are made again, each of
// them.
func TestClockOfManyRequests(t *testing.T) {
	store := NewStore(map[string][]byte{"a": Bytes(300_000, 1)})
	var wrong sync.WaitGroup
	wrong.Add(3) // all are asked before the first is answered
	ahead := time.Duration(0)
	b := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now().Add(ahead).UTC()
		w.Header().Set("Date", now.Format(http.TimeFormat))
		if signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date")); err != nil || now.Sub(signed).Abs() > 15*time.Minute {
			wrong.Done()
			wrong.Wait()
			answers(http.StatusForbidden, "RequestTimeTooSkewed").ServeHTTP(w, r)
			return
		}
		store.ServeHTTP(w, r)
	}))
	o := open(t, b, "a")
	ahead = time.Hour
	if _, err := o.ReadAt(make([]byte, 300_000), 0); err != nil {
		t.Error(err)
	}
}

// Requests that were sent before the region was known are made again, each of them.
func TestRegionOfManyRequests(t *testing.T) {
	store := NewStore(map[string][]byte{"a": Bytes(300_000, 1)})
	var wrong sync.WaitGroup
	wrong.Add(3) // all are asked before the first is answered
	moved := func(w http.ResponseWriter) {
		w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
		w.WriteHeader(http.StatusMovedPermanently)
	}
	b := connect(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && !strings.Contains(r.Header.Get("Authorization"), "/eu-central-1/s3/") {
			wrong.Done()
			wrong.Wait()
			moved(w)
			return
		}
		store.ServeHTTP(w, r)
	}))
	if _, err := open(t, b, "a").ReadAt(make([]byte, 300_000), 0); err != nil {
		t.Error(err)
	}
}
