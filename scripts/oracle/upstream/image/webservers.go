package image

import (
	"context"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"airlift/scripts/oracle/upstream/components"
)

const (
	welcome = "<html><body><h1>It works!</h1></body></html>\n"

	nginxConf = `user nobody nobody;
worker_processes auto;
error_log /dev/stderr notice;
pid /run/nginx.pid;
events { worker_connections 1024; }
http {
    default_type application/octet-stream;
    types { text/html html; text/plain txt; application/json json; image/jpeg jpg; }
    access_log /dev/stdout;
    client_body_temp_path /var/cache/nginx/client_temp;
    proxy_temp_path /var/cache/nginx/proxy_temp;
    fastcgi_temp_path /var/cache/nginx/fastcgi_temp;
    uwsgi_temp_path /var/cache/nginx/uwsgi_temp;
    scgi_temp_path /var/cache/nginx/scgi_temp;
    server {
        listen 80;
        location / { root /usr/share/nginx/html; index index.html; }
    }
}
`

	httpdConf = `ServerRoot /usr/local/apache2
DefaultRuntimeDir /usr/local/apache2/logs
PidFile logs/httpd.pid
ServerName localhost
Listen 80
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dir_module /usr/lib/apache2/modules/mod_dir.so
LoadModule mime_module /usr/lib/apache2/modules/mod_mime.so
User nobody
Group nobody
DocumentRoot /usr/local/apache2/htdocs
DirectoryIndex index.html
TypesConfig /etc/mime.types
ErrorLog /proc/self/fd/2
`

	httpdForeground = `#!/bin/sh
set -e
rm -f /usr/local/apache2/logs/httpd.pid
exec apache2 -f /usr/local/apache2/conf/httpd.conf -DFOREGROUND "$@"
`
)

// nginx has the paths of library/nginx, with Debian's nginx.
func (b *Builder) nginx(r components.Release) spec {
	server := layerSpec{"nginx 1", func(ctx context.Context, t *tree) error {
		debian, err := t.unpackDebian(ctx, true, "nginx")
		if err != nil {
			return err
		}
		t.copy(debian, func(name string) bool { return name == "usr/sbin/nginx" })
		if err := t.addLibraries(debian, inGlibc); err != nil {
			return err
		}
		t.file("etc/nginx/nginx.conf", 0o644, []byte(nginxConf))
		t.file("usr/share/nginx/html/index.html", 0o644, []byte(welcome))
		t.dir("var/cache/nginx", 0o755, 0)
		t.dir("var/log/nginx", 0o755, 0)
		return nil
	}}
	return spec{
		layers: append(static(), glibc(), b.busyboxLayer(r), server),
		config: v1.Config{
			WorkingDir: "/", Cmd: []string{"nginx", "-g", "daemon off;"}, StopSignal: "SIGQUIT",
			ExposedPorts: map[string]struct{}{"80/tcp": {}},
		},
	}
}

// httpd has the paths of library/httpd, with Debian's apache2.
func (b *Builder) httpd(r components.Release) spec {
	server := layerSpec{"httpd 1", func(ctx context.Context, t *tree) error {
		debian, err := t.unpackDebian(ctx, true, "apache2-bin", "media-types")
		if err != nil {
			return err
		}
		t.copy(debian, func(name string) bool {
			switch path.Base(name) {
			case "mod_mpm_event.so", "mod_authz_core.so", "mod_dir.so", "mod_mime.so":
				return strings.HasPrefix(name, "usr/lib/apache2/modules/")
			}
			return name == "usr/sbin/apache2" || name == "etc/mime.types"
		})
		if err := t.addLibraries(debian, inGlibc); err != nil {
			return err
		}
		t.file("usr/local/apache2/conf/httpd.conf", 0o644, []byte(httpdConf))
		t.file("usr/local/apache2/htdocs/index.html", 0o644, []byte(welcome))
		t.dir("usr/local/apache2/logs", 0o755, 0)
		t.file("usr/local/bin/httpd-foreground", 0o755, []byte(httpdForeground))
		return nil
	}}
	return spec{
		layers: append(static(), glibc(), b.busyboxLayer(r), server),
		config: v1.Config{
			WorkingDir: "/usr/local/apache2", Cmd: []string{"httpd-foreground"}, StopSignal: "SIGWINCH",
			ExposedPorts: map[string]struct{}{"80/tcp": {}},
		},
	}
}
