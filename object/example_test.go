package object_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	_ "github.com/culvert-io/culvert/object"
	"github.com/culvert-io/culvert/tensor"
)

// With the package imported, the path of a model may be a URL.
func Example() {
	header := `{"weight":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`
	file := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header+"ab"...)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
	}))
	defer srv.Close()

	m, err := tensor.Open(srv.URL + "/model.safetensors")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range m.Tensors {
		fmt.Println(t.Name, t.Dtype, t.Shape)
	}
	// Output: weight U8 [2]
}
