{{- /* The name of all objects: the release's name, followed by the chart's unless it contains it. */}}
{{- define "memlite.name" -}}
{{- if contains "memlite" .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-memlite" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "memlite.selector" -}}
app.kubernetes.io/name: memlite
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "memlite.labels" -}}
{{ include "memlite.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* Whether all pods share the items of one store. */}}
{{- define "memlite.shared" -}}
{{- if not (or (hasPrefix "memory://" .Values.backend) (hasPrefix "file://" .Values.backend)) }}yes{{ end }}
{{- end }}

{{- define "memlite.onFile" -}}
{{- if hasPrefix "file://" .Values.backend }}yes{{ end }}
{{- end }}

{{- define "memlite.health" -}}
exec: { command: [python, /opt/memlite/health.py] }
timeoutSeconds: 3
{{- end }}

{{- /* The pods, the same for a Deployment and a StatefulSet. */}}
{{- define "memlite.pod" -}}
metadata:
  labels:
    {{- include "memlite.labels" . | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "memlite.name" . }}
  automountServiceAccountToken: false
  # They would set MEMLITE_PORT=tcp://… for a Service called memlite.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 11211
    runAsGroup: 11211
    fsGroup: 11211
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: { type: RuntimeDefault }
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: memlite
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      ports:
        - { name: memcached, containerPort: 11211 }
      env:
        - { name: MEMLITE_BACKEND, value: {{ .Values.backend | quote }} }
        - { name: MEMLITE_MEMORY_LIMIT, value: {{ .Values.memoryLimit | quote }} }
        {{- with .Values.nearCache }}
        - { name: MEMLITE_NEAR_CACHE, value: {{ . | quote }} }
        {{- end }}
        {{- if .Values.usersSecret }}
        - { name: MEMLITE_AUTH_FILE, value: /etc/memlite/users/users }
        {{- end }}
        {{- if .Values.tlsSecret }}
        - { name: MEMLITE_ENABLE_SSL, value: "1" }
        - name: MEMLITE_EXTENDED
          value: ssl_chain_cert=/etc/memlite/tls/tls.crt,ssl_key=/etc/memlite/tls/tls.key
        {{- end }}
        {{- if .Values.storeSecret }}
        - name: MEMLITE_VALKEY_PASSWORD
          valueFrom: { secretKeyRef: { name: {{ .Values.storeSecret }}, key: password } }
        {{- end }}
        {{- range $name, $value := .Values.env }}
        - { name: {{ $name }}, value: {{ $value | quote }} }
        {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: { drop: [ALL] }
      # A file is loaded before the server listens, at 100,000 items per second or more.
      startupProbe:
        {{- include "memlite.health" . | nindent 8 }}
        periodSeconds: 2
        failureThreshold: 90
      readinessProbe:
        {{- include "memlite.health" . | nindent 8 }}
        periodSeconds: 10
      # The server responds even without its store, so a slow store does not cause a restart.
      livenessProbe:
        {{- include "memlite.health" . | nindent 8 }}
        periodSeconds: 20
        failureThreshold: 3
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      {{- if or (include "memlite.onFile" .) .Values.usersSecret .Values.tlsSecret }}
      volumeMounts:
        {{- if include "memlite.onFile" . }}
        - { name: data, mountPath: /data }
        {{- end }}
        {{- if .Values.usersSecret }}
        - { name: users, mountPath: /etc/memlite/users, readOnly: true }
        {{- end }}
        {{- if .Values.tlsSecret }}
        - { name: tls, mountPath: /etc/memlite/tls, readOnly: true }
        {{- end }}
      {{- end }}
  {{- if or .Values.usersSecret .Values.tlsSecret }}
  volumes:
    {{- if .Values.usersSecret }}
    - name: users
      secret: { secretName: {{ .Values.usersSecret }}, defaultMode: 0440 }
    {{- end }}
    {{- if .Values.tlsSecret }}
    - name: tls
      secret: { secretName: {{ .Values.tlsSecret }}, defaultMode: 0440 }
    {{- end }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "memlite.selector" . | nindent 10 }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
