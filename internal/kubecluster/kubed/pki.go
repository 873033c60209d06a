//go:build linux

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// A pki is a folder of keys and certificates for one cluster, all from one authority that nobody else trusts.
type pki struct {
	dir  string
	ca   *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	p := &pki{dir: dir}
	p.ca = p.template(pkix.Name{CommonName: "sandglass test cluster"})
	p.ca.IsCA, p.ca.BasicConstraintsValid, p.ca.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	var err error
	if p.key, err = p.newKey("ca"); err != nil {
		return nil, err
	}
	if err := p.sign("ca", p.ca, p.key); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(p.path("ca.crt"))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	p.ca, err = x509.ParseCertificate(block.Bytes) // with what signing has added
	return p, err
}

// path returns the path of a file of the folder: "ca.crt", "ca.key".
func (p *pki) path(file string) string { return filepath.Join(p.dir, file) }

func (p *pki) template(subject pkix.Name) *x509.Certificate {
	p.next++
	return &x509.Certificate{
		SerialNumber: big.NewInt(p.next), Subject: subject,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(7 * 24 * time.Hour),
	}
}

// newKey makes NAME.key, and returns it.
func (p *pki) newKey(name string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, os.WriteFile(p.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func (p *pki) sign(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, cert, p.ca, &key.PublicKey, p.key)
	if err != nil {
		return err
	}
	return os.WriteFile(p.path(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

// client makes NAME.crt and NAME.key for a user of the API server in one of its groups.
func (p *pki) client(name, user, group string) error {
	cert := p.template(pkix.Name{CommonName: user})
	if group != "" {
		cert.Subject.Organization = []string{group}
	}
	cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	key, err := p.newKey(name)
	if err != nil {
		return err
	}
	return p.sign(name, cert, key)
}

// server makes NAME.crt and NAME.key for a server on this machine.
func (p *pki) server(name string, hosts ...string) error {
	cert := p.template(pkix.Name{CommonName: name})
	cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, host)
		}
	}
	key, err := p.newKey(name)
	if err != nil {
		return err
	}
	return p.sign(name, cert, key)
}
