{{- define "groundwire.image" -}}
{{- $image := .Values.image -}}
{{- if not (or $image.digest $image.tag) -}}{{ fail "set image.digest (or image.tag) and image.repository" }}{{- end -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else if $image.tag }}:{{ $image.tag }}{{ end }}
{{- end -}}
