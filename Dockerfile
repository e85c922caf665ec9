FROM rust:1-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked
RUN mkdir /state

# glibc and libgcc and nothing else: no shell, no package manager, user 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/weir /weir
# For `snapshot.path`; a volume that is mounted here takes over whose it is.
COPY --from=build --chown=65532:65532 /state /var/lib/weir
USER nonroot
EXPOSE 8080 9901
HEALTHCHECK CMD ["/weir", "healthcheck"]
ENTRYPOINT ["/weir"]
CMD ["run", "--config", "/etc/weir/weir.toml"]
