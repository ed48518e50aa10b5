// Package cufileconf reads the configuration of cuFile: cufile.json, which is JSON with
// comments, and the CUFILE_ variables. A value that is NVIDIA's stock value asks for
// nothing; any other is applied to a cufile.Config if it means something here.
package cufileconf
